import { nameBytesMax } from '@stowage/common/names';

/**
 * The `n`-th name to try in place of one that is taken, for example `report (2).pdf`. The last extension is kept; the
 * stem is cut at a character where the whole would be too long.
 */
export function nextFreeName(name: string, n: number): string {
  const { stem, extension } = split(name);
  const suffix = ` (${n})${extension}`;
  return cut(stem, nameBytesMax - Buffer.byteLength(suffix)) + suffix;
}

/** What follows a last dot and looks like an extension; longer or with white space it is part of a sentence. */
const extensionPattern = /^\.[^.\p{White_Space}]{1,32}$/u;

function split(name: string): { stem: string; extension: string } {
  const dot = name.lastIndexOf('.');
  const stem = name.slice(0, Math.max(dot, 0));
  const extension = name.slice(stem.length);
  // A dotfile such as `.env` is all stem.
  if (!/[^.]/.test(stem) || !extensionPattern.test(extension)) return { stem: name, extension: '' };
  return { stem, extension };
}

function cut(text: string, bytes: number): string {
  let length = 0;
  let room = bytes;
  for (const character of text) {
    room -= Buffer.byteLength(character);
    if (room < 0) break;
    length += character.length;
  }
  return text.slice(0, length);
}
