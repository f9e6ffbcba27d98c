import { create } from 'content-disposition';

export interface ContentFile {
  name: string;
  mediaType: string;
  /** 32 bytes. */
  sha256: Buffer;
  updatedAt?: Date | undefined;
}

/**
 * What a browser may show in place on `stream`; all else is an attachment and sandboxed. Nothing here can run a script
 * in our origin: SVG, HTML and XML must never be added.
 */
const shownInline = {
  media: [
    /^image\/(png|apng|jpeg|gif|webp|avif|heic|heif|bmp|tiff|jxl|x-icon|vnd\.microsoft\.icon)$/,
    /^(audio|video)\/[a-z0-9._-]+$/,
  ],
  document: [/^application\/pdf$/],
  text: [/^text\/plain$/],
} as const;

/** RFC 6838 names, so that no stored type, an imported one included, can break out of its header. */
const wellFormedType = /^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$/;

/** Control characters, line separators and bidirectional overrides: refused in names, but an import may bring them. */
const unsafeInNames = /[\p{Cc}\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

/**
 * The headers that belong to a file's content, whichever range of it is sent, by lower-case name; Content-Length,
 * Content-Range and the status are the caller's. `stream` shows in place what is harmless there; `download` is always
 * an attachment.
 */
export function contentHeaders(file: ContentFile, disposition: 'download' | 'stream'): Record<string, string> {
  const type = wellFormedType.test(file.mediaType) ? file.mediaType : 'application/octet-stream';
  const isIn = (patterns: readonly RegExp[]): boolean => patterns.some((pattern) => pattern.test(type));
  const unsandboxed = isIn(shownInline.media) || isIn(shownInline.document);
  const inline = disposition === 'stream' && (unsandboxed || isIn(shownInline.text));
  return {
    'content-type': type.startsWith('text/') ? `${type}; charset=utf-8` : type,
    'content-disposition': contentDisposition(file.name, inline ? 'inline' : 'attachment'),
    'content-security-policy': `default-src 'none'; frame-ancestors 'self'${unsandboxed ? '' : '; sandbox'}`,
    // For browsers that know no frame-ancestors; it must not say another thing than that.
    'x-frame-options': 'SAMEORIGIN',
    'cross-origin-resource-policy': 'same-origin',
    'x-content-type-options': 'nosniff',
    'cache-control': 'private, no-cache',
    'accept-ranges': 'bytes',
    etag: `"${file.sha256.toString('hex')}"`,
    'repr-digest': `sha-256=:${file.sha256.toString('base64')}:`,
    ...(file.updatedAt !== undefined && { 'last-modified': file.updatedAt.toUTCString() }),
  };
}

/** RFC 6266: a plain ASCII `filename` that every client reads alike, and the true name in `filename*`. */
function contentDisposition(name: string, type: 'inline' | 'attachment'): string {
  const safe = name.toWellFormed().replace(unsafeInNames, '_');
  const fallback = safe.replace(/[^\x20-\x7e]|["\\%/]/gu, '_');
  return create(safe, { type, fallback });
}
