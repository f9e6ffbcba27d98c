import { extname } from 'node:path';
import { fileTypeFromBuffer } from 'file-type';
import { lookup } from 'mime-types';
import { isMediaType } from '@stowage/common/media-type';

export type FileClass = 'image' | 'video' | 'audio' | 'document' | 'archive' | 'other';

const unknown = 'application/octet-stream';
const sampleBytes = 4_100;
const signatureMs = 1_000;

const textLike = new RegExp(
  String.raw`^text/|\+(json|xml|yaml)$|^application/(` +
    'json|json5|jsonl|x-ndjson|xml|xml-dtd|yaml|x-yaml|toml|sql|x-sql|graphql|javascript|x-javascript|ecmascript|' +
    'typescript|x-typescript|x-sh|x-shellscript|x-csh|x-tcl|x-perl|x-python|x-ruby|x-httpd-php|x-tex|x-latex|' +
    'x-subrip|x-pem-file|pgp-signature|pgp-keys|mbox|x-www-form-urlencoded|manifest)$|^message/rfc822$|^model/obj$',
);

/** Types whose content may be nothing but text. */
const textSignatures: ReadonlySet<string> = new Set([
  'application/pdf',
  'application/rtf',
  'application/xml',
  'application/pgp-encrypted',
  'application/x-ms-regedit',
  'text/calendar',
  'text/vcard',
  'text/vtt',
]);

/** The same, but prose may begin like them too ("solid …", "%!…"): the claim or the extension must agree. */
const weakTextSignatures: ReadonlySet<string> = new Set(['application/postscript', 'application/eps', 'model/stl']);

/** What a claim or an extension may make of a signature that many types share. */
const refinements: Readonly<Record<string, RegExp>> = {
  'application/zip':
    /^application\/(vnd\.(openxmlformats-officedocument|oasis\.opendocument|ms-(word|excel|powerpoint))\.|vnd\.apple\.(pages|numbers|keynote)$|vnd\.android\.package-archive$|vnd\.google-earth\.kmz$|java-archive$|x-xpinstall$|x-cbz$|[^+]*\+zip$)|^model\/3mf$/,
  'application/x-cfb':
    /^application\/(msword|vnd\.ms-(excel|powerpoint|outlook|project|works)|vnd\.visio|x-msi|x-mspublisher)$/,
  'application/xml': /^(text|application)\/xml$|\+xml$|^text\/html$/,
  'application/gzip': /^application\/(x-gzip|x-gtar|x-tgz|x-compressed-tar|tar\+gzip)$/,
  'application/x-msdownload': /^application\/(vnd\.microsoft\.portable-executable|x-dosexec|x-msdos-program)$/,
  'application/ogg': /^(audio|video)\/ogg$|^audio\/opus$/,
  'audio/ogg': /^audio\/opus$|^application\/ogg$/,
  'video/ogg': /^application\/ogg$/,
  'video/mp4': /^(audio\/mp4|audio\/x-m4a|video\/x-m4v)$/,
  'video/webm': /^audio\/webm$/,
  'video/matroska': /^(video\/x-matroska|audio\/x-matroska|audio\/matroska)$/,
  'application/vnd.ms-asf': /^(video\/x-ms-(asf|wmv)|audio\/x-ms-wma)$/,
  'video/x-ms-asf': /^video\/x-ms-wmv$/,
  'audio/x-ms-asf': /^audio\/x-ms-wma$/,
  'image/tiff': /^image\/(x-adobe-dng|x-nikon-nef|x-sony-arw|x-canon-cr2|x-pentax-pef)$/,
};

/**
 * The media type of a file, from its first bytes (4,100 are looked at), what the client said it is, and its name.
 * A signature wins; the claim or the extension may refine it only within its container. Without one, text is what the
 * client or the extension says if that is a kind of text, else `text/plain`; all else is `application/octet-stream`.
 * Always lower case, without parameters and fit for a header. Never throws.
 */
export async function detectMediaType(head: Buffer, claimed: string | null, filename: string): Promise<string> {
  const sample = head.subarray(0, sampleBytes);
  const hints = [parseMediaType(claimed), typeByExtension(filename)].filter((type) => type !== null);
  const textHint = hints.find((type) => textLike.test(type));
  if (sample.length === 0) return textHint ?? unknown;

  const text = isText(sample);
  const signature = await signatureOf(sample);
  if (signature !== null && (!text || mayBeText(signature, hints))) {
    const pattern = Object.hasOwn(refinements, signature) ? refinements[signature] : undefined;
    return hints.find((type) => type === signature || pattern?.test(type)) ?? signature;
  }
  return text ? (textHint ?? 'text/plain') : unknown;
}

/** The class that a file gets when the client names none. */
export function fileClassOf(mediaType: string): FileClass {
  const kind = /^(image|video|audio)\//.exec(mediaType)?.[1];
  if (kind === 'image' || kind === 'video' || kind === 'audio') return kind;
  if (mediaType === 'application/ogg') return 'audio';
  if (/^application\/(mxf|vnd\.ms-asf|vnd\.rn-realmedia)$/.test(mediaType)) return 'video';
  if (documentTypes.test(mediaType) || textLike.test(mediaType)) return 'document';
  return archiveTypes.test(mediaType) ? 'archive' : 'other';
}

const documentTypes =
  /^application\/(pdf|rtf|postscript|eps|msword|epub\+zip|x-mobipocket-ebook|x-mspublisher|x-cfb|vnd\.(openxmlformats-officedocument|oasis\.opendocument|ms-(word|excel|powerpoint))\.|vnd\.ms-(excel|powerpoint|outlook|project|works)$|vnd\.apple\.(pages|numbers|keynote)$|vnd\.visio$)/;

const archiveTypes =
  /^application\/(zip|gzip|zstd|java-archive|vnd\.android\.package-archive|vnd\.rar|vnd\.ms-cab-compressed|lzip|x-(gzip|gtar|tgz|compressed-tar|7z-compressed|rar-compressed|tar|bzip2|xz|lz4|lzh-compressed|compress|arj|ace-compressed|cpio|deb|rpm|unix-archive|asar|cbz|xpinstall|apple-diskimage|iso9660-image))$/;

function parseMediaType(value: string | null | undefined): string | null {
  const type = value?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  return isMediaType(type) ? type : null;
}

function typeByExtension(filename: string): string | null {
  // `lookup` takes a name without a dot for an extension: a file called `html` is none.
  const extension = extname(filename);
  const type = extension === '' ? false : lookup(extension);
  return type === false ? null : parseMediaType(type);
}

async function signatureOf(sample: Buffer): Promise<string | null> {
  try {
    const found = await fileTypeFromBuffer(sample, { signal: AbortSignal.timeout(signatureMs) });
    return parseMediaType(found?.mime) ?? tiffOf(sample);
  } catch {
    return tiffOf(sample);
  }
}

/** The library looks for the directory of a TIFF, which mostly lies at the end of the file, out of the sample. */
function tiffOf(sample: Buffer): string | null {
  return ['49492a00', '4d4d002a'].includes(sample.toString('hex', 0, 4)) ? 'image/tiff' : null;
}

/** Text may begin like a picture or a film by chance ("BMW …", a `G` at 0 and at 188): then it is still text. */
function mayBeText(signature: string, hints: string[]): boolean {
  return textSignatures.has(signature) || (weakTextSignatures.has(signature) && hints.includes(signature));
}

/** UTF-8 without the control characters that the WHATWG MIME sniffing standard calls binary. */
function isText(sample: Buffer): boolean {
  try {
    // A stream, as the sample may end within a character.
    const text = new TextDecoder('utf-8', { fatal: true }).decode(sample, { stream: true });
    // eslint-disable-next-line no-control-regex
    return !/[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]/.test(text);
  } catch {
    return false;
  }
}
