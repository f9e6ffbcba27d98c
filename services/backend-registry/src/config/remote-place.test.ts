import { describe, expect, test } from '@jest/globals';
import { remoteOverlap, remotePlace } from './remote-place.ts';
import type { RemotePlace } from './remote-place.ts';

const s3 = (prefix?: string, more: Record<string, string | null> = {}): RemotePlace =>
  placed('s3', {
    endpoint: 'https://s3.example.com',
    bucket: 'files',
    ...(prefix === undefined ? {} : { prefix }),
    ...more,
  });
const dav = (url: string, root_path?: string, username = 'ada'): RemotePlace =>
  placed('webdav', { url, username, ...(root_path === undefined ? {} : { root_path }) });

function placed(type: 's3' | 'webdav', config: Record<string, string | null>): RemotePlace {
  const place = remotePlace(type, config);
  if (!place) throw new Error('no place');
  return place;
}

describe('Two places over the network', () => {
  test.each([
    ['the same', s3('a'), s3('a')],
    ['a slash at the end', s3('a'), s3('a/')],
    ['one below', s3('a'), s3('a/b')],
    ['a whole bucket and a folder in it', s3(), s3('a')],
    ['no prefix and an empty one', s3(), s3('')],
    ['letters of the host', s3('a'), s3('a', { endpoint: 'HTTPS://S3.Example.COM' })],
    ['a port that is the usual one', s3('a'), s3('a', { endpoint: 'https://s3.example.com:443/' })],
    ['a host with a dot at its end', s3('a'), s3('a', { endpoint: 'https://s3.example.com.' })],
    ['AWS by two names', s3('', { endpoint: null }), s3('', { endpoint: 'https://s3.eu-central-1.amazonaws.com' })],
    ['the same folder', dav('http://dav.example.com', '/x'), dav('http://dav.example.com/', '/x')],
    [
      'a folder that the address names',
      dav('http://dav.example.com/team', '/x'),
      dav('http://dav.example.com', '/team/x'),
    ],
    ['the folder where none is named', dav('http://dav.example.com'), dav('http://dav.example.com', '/stowage/in')],
    ['the root', dav('http://dav.example.com', '/'), dav('http://dav.example.com', '/x')],
    ['odd slashes and dots', dav('http://dav.example.com//a/./', '/x'), dav('http://dav.example.com/a', '/x')],
    ['escapes', dav('http://dav.example.com/%61', '/x'), dav('http://dav.example.com/a', '/x')],
  ])('overlap: %s', (_what, one, other) => {
    expect([remoteOverlap(one, other), remoteOverlap(other, one)]).toEqual([true, true]);
  });

  test.each([
    ['folders side by side', s3('a'), s3('b')],
    ['a name that begins alike', s3('a'), s3('ab')],
    ['another bucket', s3('a'), s3('a', { bucket: 'others' })],
    ['another port', s3('a'), s3('a', { endpoint: 'https://s3.example.com:9000' })],
    ['another case', s3('a'), s3('A')],
    [
      'another user, who may see other folders',
      dav('http://dav.example.com', '/x'),
      dav('http://dav.example.com', '/x', 'bob'),
    ],
    ['S3 and WebDAV', s3('x'), dav('https://s3.example.com', '/x')],
  ])('do not: %s', (_what, one, other) => {
    expect([remoteOverlap(one, other), remoteOverlap(other, one)]).toEqual([false, false]);
  });
});
