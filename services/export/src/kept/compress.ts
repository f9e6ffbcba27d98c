import { pipeline } from 'node:stream';
import type { Readable } from 'node:stream';
import { createGunzip, createGzip } from 'node:zlib';

/** A stream compressed with gzip; the end of one is the end of both. */
export function compressed(plain: Readable): Readable {
  // Metadata are so alike from line to line that more effort saves little.
  return pipeline(plain, createGzip({ level: 2 }), () => undefined);
}

/** The opposite. */
export function expanded(gzip: Readable): Readable {
  return pipeline(gzip, createGunzip(), () => undefined);
}
