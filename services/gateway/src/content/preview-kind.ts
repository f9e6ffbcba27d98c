import { extname } from 'node:path';
import { AppError } from '@stowage/common/errors';

const pictures: ReadonlySet<string> = new Set(
  ['png', 'apng', 'jpeg', 'gif', 'webp', 'avif', 'heif', 'tiff'].map((name) => `image/${name}`),
);

const texts = new RegExp(
  String.raw`^text/|\+(json|xml|yaml)$|^application/(` +
    'json|json5|jsonl|x-ndjson|xml|xml-dtd|csv|yaml|x-yaml|toml|sql|x-sql|graphql|javascript|x-javascript|ecmascript|' +
    'typescript|x-typescript|x-sh|x-shellscript|x-csh|x-tcl|x-perl|x-python|x-ruby|x-httpd-php|x-tex|x-latex|x-subrip)$',
);

/** For content that is no UTF-8 (Latin-1, say), whose detected type tells nothing. */
const textExtensions: ReadonlySet<string> = new Set(
  (
    'txt text log md markdown csv tsv json jsonl xml yaml yml toml ini conf cfg properties env sql graphql js mjs cjs ' +
    'jsx ts mts cts tsx css scss html htm sh bash zsh bat ps1 py rb php pl lua go rs java kt swift c h cc cpp hpp cs ' +
    'scala r tex srt vtt diff patch proto tf'
  ).split(' '),
);

const previewBytes = 65_536;

/** How a file is previewed; null when it is not. SVG never is: it is a program as well as a picture. */
export function previewKind(mediaType: string, name: string): 'image' | 'text' | null {
  const type = mediaType.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  if (pictures.has(type)) return 'image';
  if (type.startsWith('image/')) return null;
  if (texts.test(type)) return 'text';
  const byName = type === 'application/octet-stream' && textExtensions.has(extname(name).slice(1).toLowerCase());
  return byName ? 'text' : null;
}

/**
 * The first 64 KiB as valid UTF-8, never ending within a character; what is not UTF-8 is replaced by U+FFFD.
 * `bytes` is the start of the file, 64 KiB of it at least where it is longer.
 * @throws AppError `unsupported_media_type` when it holds a NUL, as only binary content does.
 */
export function textPreview(bytes: Buffer): Buffer {
  const start = bytes.subarray(0, previewBytes);
  if (start.includes(0)) throw new AppError('unsupported_media_type', 'The file is not text, so it has no preview.');
  // As a stream, a character that the cut has split is held back; a file that ends there by itself is shown whole.
  const cut = bytes.length >= previewBytes;
  return Buffer.from(new TextDecoder('utf-8').decode(start, { stream: cut }), 'utf-8');
}
