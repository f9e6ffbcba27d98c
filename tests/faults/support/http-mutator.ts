import type { Random } from '../../support/random.ts';

/** A request taken apart, so that each part can go wrong by itself. */
interface Request {
  method: string;
  target: string;
  version: string;
  headers: [string, string][];
  body: Buffer;
}

const utf8Faults = ['\xff', '\xc0\xaf', '\xed\xa0\x80', '\xf4\x90\x80\x80', '\xe2\x28\xa1', '\x80'];
const escapes = [
  '%',
  '%0',
  '%zz',
  '%00',
  '%2e%2e%2f',
  '%c0%af',
  '%ff',
  '%u0041',
  '%25%32%65',
  '%0d%0aX: y',
  '..//',
  '\\',
];
const lengths = ['-1', '+5', '0x10', '1e3', '99999999999999999999', '5, 5', '5,6', ' 5', '', '5 5', '1.5', 'NaN', '05'];
const encodings = [
  'chunked',
  'identity',
  'gzip, chunked',
  'chunked, chunked',
  'xchunked',
  ' chunked',
  'chunked\x00',
  'CHUNKED',
  'chunked;q=1',
];
const values = [
  '',
  '\x00',
  '\x0b',
  '\x7f',
  'a\x00b',
  'a\rb',
  'a\nb',
  '\t\t',
  '"',
  '()',
  '\u00e9',
  '\xff\xfe',
  ' '.repeat(500),
];
const oddities = [
  'GET',
  'get',
  'G\x00T',
  'PRI',
  'CONNECT',
  'TRACE',
  'QUERY',
  'M-SEARCH',
  '',
  'GET GET',
  '\xff',
  'X'.repeat(300),
];
const versions = [
  'HTTP/1.0',
  'HTTP/0.9',
  'HTTP/2.0',
  'HTTP/1.1 ',
  'http/1.1',
  'HTTP/11',
  'HTTP/1.1\x00',
  '',
  'HTTP/9.9',
];
const names = [
  'Range',
  'If-Match',
  'If-Range',
  'Upload-Offset',
  'Upload-Length',
  'Upload-Metadata',
  'Upload-Checksum',
  'Idempotency-Key',
  'Content-Type',
  'Authorization',
  'Expect',
  'Upgrade',
  'Connection',
  'X-Request-Id',
  'traceparent',
  'X-Forwarded-For',
  'Host',
  'Cookie',
  'X-HTTP-Method-Override',
  'Accept-Encoding',
  'Trailer',
  'TE',
  'If-None-Match',
  'If-Modified-Since',
  'Origin',
];
const meanings = [
  'bytes=0-',
  'bytes=-0',
  'bytes=9-1',
  'bytes=0-99999999999999999999',
  'bytes=' + '0-1,'.repeat(2000),
  '"1"',
  'W/"1"',
  '*',
  '18446744073709551616',
  '100-continue',
  'h2c',
  'websocket',
  'close, Host',
  'application/json; charset=utf-7',
  'Bearer ',
  'Bearer a b',
  '00-0-0-0',
  'sha256 AAAA',
  'filename ' + 'A'.repeat(9000),
  'PATCH',
  'keep-alive, Upgrade',
  '\x00',
];

type Mutation = (request: Request, random: Random) => void;

const mutations: readonly Mutation[] = [
  (request, random) => void (request.method = pick(random, oddities)),
  (request, random) => void (request.version = pick(random, versions)),
  (request, random) =>
    void (request.target = insert(random, request.target, pick(random, [...escapes, ...utf8Faults]))),
  (request, random) => void (request.target += `?${'a=b&'.repeat(random.integer(1, 3000))}${pick(random, escapes)}`),
  (request, random) =>
    void (request.target = pick(random, [
      '*',
      '',
      '//',
      'http://x/',
      'x:1',
      `/${'a'.repeat(40_000)}`,
      '/api/../files',
      '/%',
    ])),
  (request, random) => void request.headers.push(['Content-Length', pick(random, lengths)]),
  (request, random) => void request.headers.push(['Content-Length', String(random.integer(0, 50))]),
  (request, random) => void request.headers.push(['Transfer-Encoding', pick(random, encodings)]),
  (request, random) => {
    request.headers.push(['Transfer-Encoding', 'chunked']);
    request.body = chunked(random, request.body);
  },
  (request, random) => void request.headers.push([insert(random, pick(random, names), pick(random, values)), 'x']),
  (request, random) =>
    void request.headers.push([pick(random, names), pick(random, [...values, ...utf8Faults, ...meanings])]),
  (request, random) => void request.headers.push([pick(random, names), pick(random, meanings)]),
  (request, random) => void request.headers.push(['X-Long', 'a'.repeat(random.integer(1_000, 70_000))]),
  (request, random) => {
    for (let count = random.integer(50, 2_500); count > 0; count -= 1) request.headers.push([`X-${count}`, '']);
  },
  (request, random) => void request.headers.splice(random.integer(0, request.headers.length - 1), 1),
  (request, random) => void request.headers.push(...request.headers.slice(random.integer(0, request.headers.length))),
  (request, random) => void (request.body = flip(random, request.body)),
  (request, random) => void (request.body = random.bytes(random.integer(0, 300))),
  (request, random) => void (request.body = Buffer.from('['.repeat(random.integer(1, 20_000)))),
];

/** Those that the parser lets through, for the code behind it to refuse. */
const deeper: readonly Mutation[] = [
  (request, random) => void request.headers.push([pick(random, names), pick(random, meanings)]),
  (request, random) =>
    void (request.target = insert(
      random,
      request.target,
      pick(random, ['%', '%zz', '%00', '%ff', '%c0%af', '%2e%2e%2f']),
    )),
  (request, random) => {
    request.body = random.chance(0.5) ? flip(random, request.body) : random.bytes(random.integer(0, 300));
    for (const header of request.headers) if (header[0] === 'Content-Length') header[1] = String(request.body.length);
  },
];

/** Bytes that a request on the wire should not be, or only just may. */
export function mutate(random: Random, text: string): Buffer {
  const request = parse(text);
  for (let count = random.integer(1, 2); count > 0; count -= 1)
    pick(random, random.chance(0.5) ? mutations : deeper)(request, random);
  const bytes = render(request, random);
  return random.chance(0.08) ? flip(random, bytes) : bytes;
}

function parse(text: string): Request {
  const end = text.indexOf('\r\n\r\n');
  const [line = '', ...lines] = text.slice(0, end).split('\r\n');
  const [method = '', target = '', version = ''] = line.split(' ');
  const headers = lines.map((header): [string, string] => [
    header.slice(0, header.indexOf(':')),
    header.slice(header.indexOf(':') + 2),
  ]);
  return { method, target, version, headers, body: Buffer.from(text.slice(end + 4)) };
}

function render({ method, target, version, headers, body }: Request, random: Random): Buffer {
  const [newline, separator] = random.chance(0.9)
    ? ['\r\n', ': ']
    : [pick(random, ['\n', '\r', '\r\r\n']), pick(random, [':', ' : ', '\t:'])];
  const lines = [`${method} ${target} ${version}`, ...headers.map(([name, value]) => `${name}${separator}${value}`)];
  return Buffer.concat([Buffer.from(`${lines.join(newline)}${newline}${newline}`, 'latin1'), body]);
}

/** A chunked body, in most cases a wrong one. */
function chunked(random: Random, body: Buffer): Buffer {
  const size = pick(random, [
    body.length.toString(16),
    '-1',
    'ffffffffffffffffff',
    'zz',
    '0x5',
    '',
    `${body.length.toString(16)};${'e'.repeat(random.integer(0, 20_000))}`,
    '5 ',
    '7fffffff',
  ]);
  const end = pick(random, [
    '\r\n0\r\n\r\n',
    '0\r\n\r\n',
    '\n0\n\n',
    '\r\n0\r\nHost: x\r\n\r\n',
    '',
    '\r\n0\r\nA: \x00\r\n\r\n',
  ]);
  return Buffer.concat([Buffer.from(`${size}${pick(random, ['\r\n', '\r\n', '\n', '\r'])}`), body, Buffer.from(end)]);
}

function flip(random: Random, bytes: Buffer): Buffer {
  const copy = Buffer.from(bytes);
  for (let count = random.integer(1, 4); count > 0 && copy.length > 0; count -= 1)
    copy.writeUInt8(random.integer(0, 255), random.integer(0, copy.length - 1));
  return random.chance(0.2) ? copy.subarray(0, random.integer(0, copy.length)) : copy;
}

function insert(random: Random, text: string, piece: string): string {
  const at = random.integer(0, text.length);
  return text.slice(0, at) + piece + text.slice(at);
}

export function pick<T>(random: Random, all: readonly T[]): T {
  const chosen = all[random.integer(0, all.length - 1)];
  if (chosen === undefined) throw new Error('there is nothing to choose from');
  return chosen;
}
