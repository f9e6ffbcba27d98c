import { describe, expect, test } from '@jest/globals';
import { prefersGzip } from './content-coding.ts';

describe('gzip is chosen', () => {
  test.each([
    'gzip',
    'GZIP',
    'x-gzip',
    'gzip, deflate, br',
    'br;q=1, gzip;q=0.8',
    'gzip ; q=0.5',
    'gzip;q=0.001',
    '*',
    'deflate, *;q=0.1',
    'identity;q=0.5, gzip',
    'identity;q=0, *',
    'gzip;q=1.000, identity',
  ])('for %p', (header) => expect(prefersGzip(header)).toBe(true));

  test.each([
    undefined,
    '',
    'identity',
    'br, deflate',
    'gzip;q=0',
    'gzip;q=0.000',
    'gzip;q=0, *',
    '*;q=0',
    'gzip;q=0.5, identity',
    'gzip;q=0.5, *',
    'gzip;q=2',
    'gzip;q=-1',
    'gzip;level=9',
    'gzipped',
  ])('not for %p', (header) => expect(prefersGzip(header)).toBe(false));
});
