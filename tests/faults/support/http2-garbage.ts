import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import type { Random } from '../../support/random.ts';
import { pick } from './http-mutator.ts';

const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
const waitMs = 300;

/** A frame of HTTP/2; `told` is the length that its head claims. */
function frame(type: number, flags: number, stream: number, payload: Buffer, told = payload.length): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(told & 0xff_ffff, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream >>> 0, 5);
  return Buffer.concat([head, payload]);
}

const settings = frame(4, 0, 0, Buffer.alloc(0));

/** Frames that break a rule of RFC 9113 each. */
const rules: readonly ((random: Random) => Buffer)[] = [
  (random) =>
    frame(random.integer(0, 255), random.integer(0, 255), random.integer(0, 9), random.bytes(random.integer(0, 200))),
  (random) => frame(1, 4, 1, random.bytes(random.integer(1, 500))),
  (random) => frame(1, 0, 1, random.bytes(20), 0xff_ffff),
  () => frame(0, 0, 1, Buffer.from('data before headers')),
  () => frame(8, 0, 0, Buffer.from('7fffffff', 'hex')),
  () => frame(8, 0, 0, Buffer.alloc(4)),
  () => frame(4, 0, 0, Buffer.from('000400000000ffffffff', 'hex').subarray(0, 7)),
  () => frame(4, 0, 0, Buffer.from('0004ffffffff', 'hex')),
  () => Buffer.concat(Array.from({ length: 200 }, () => frame(9, 0, 1, Buffer.alloc(100)))),
  () => Buffer.concat(Array.from({ length: 500 }, () => frame(6, 0, 0, Buffer.alloc(8)))),
  () => Buffer.concat(Array.from({ length: 500 }, () => settings)),
  () => Buffer.concat(Array.from({ length: 200 }, (_, index) => frame(3, 0, index * 2 + 1, Buffer.alloc(4)))),
  () => frame(7, 0, 0, Buffer.alloc(8)),
  () => frame(5, 4, 1, Buffer.alloc(40)),
];

/** One connection with nonsense on it, which the other side may end as it likes. */
export async function garbageConnection(random: Random, port: number): Promise<void> {
  const socket = connect({ host: '127.0.0.1', port });
  socket.on('error', () => undefined);
  socket.resume();
  const frames = Array.from({ length: random.integer(1, 5) }, () => pick(random, rules)(random));
  const bytes = random.chance(0.2)
    ? random.bytes(random.integer(1, 2_000))
    : Buffer.concat([preface, settings, ...frames]);
  const closed = once(socket, 'close');
  socket.end(bytes);
  const timer = setTimeout(() => socket.destroy(), waitMs);
  await closed;
  clearTimeout(timer);
}

const paths = [
  '/stowage.catalog.v1.TreeService/GetNode',
  '/stowage.upload.v1.UploadService/CreateUpload',
  '/stowage.placement.v1.JobService/ListJobs',
  '/stowage.backend_registry.v1.BackendService/ListBackends',
  '/stowage.system.v1.SystemService/Check',
  '/stowage.nothing.v1.Nothing/Nothing',
  '/',
];

/** Well-formed HTTP/2 with malformed gRPC in it; gives how often each grpc-status came (`none` where none did). */
export async function sendGarbledCalls(random: Random, port: number, count: number): Promise<Record<string, number>> {
  const session = connectHttp2(`http://127.0.0.1:${port}`);
  session.on('error', () => undefined);
  const statuses: Record<string, number> = {};
  for (let sent = 0; sent < count && !session.destroyed; sent += 1) {
    const stream = session.request(
      {
        ':method': random.chance(0.9) ? 'POST' : 'GET',
        ':path': pick(random, paths),
        'content-type': pick(random, ['application/grpc', 'application/grpc+proto', 'text/plain']),
        te: 'trailers',
        'grpc-timeout': pick(random, ['1S', '-1S', '99999999999H', 'x', '100m']),
        'grpc-encoding': pick(random, ['identity', 'gzip', 'nonsense']),
      },
      { endStream: false },
    );
    let status = 'none';
    const note = (headers: Record<string, unknown>): void => {
      if (headers['grpc-status'] !== undefined) status = String(headers['grpc-status']);
    };
    stream
      .on('response', note)
      .on('trailers', note)
      .on('error', () => undefined)
      .resume();
    stream.setTimeout(2_000, () => stream.close());
    const closed = once(stream, 'close');
    stream.end(message(random));
    await closed;
    statuses[status] = (statuses[status] ?? 0) + 1;
  }
  session.destroy();
  return statuses;
}

/** A gRPC message: a flag, a length, and bytes; one of them is wrong, or all. */
function message(random: Random): Buffer {
  const body = Buffer.concat([Buffer.from([0xff]), random.bytes(random.integer(1, 100))]);
  const head = Buffer.alloc(5);
  head.writeUInt8(pick(random, [0, 1, 255]), 0);
  head.writeUInt32BE(pick(random, [body.length, body.length + 1, 0xffff_ffff, 0x7fff_ffff]), 1);
  return Buffer.concat([head, body]);
}
