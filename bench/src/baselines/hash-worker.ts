import { createHash } from 'node:crypto';
import { parentPort, workerData } from 'node:worker_threads';
import { slotBytes } from './hash-ring.ts';
import type { RingMessage } from './hash-ring.ts';

const memory: unknown = workerData;
if (!parentPort || !(memory instanceof SharedArrayBuffer)) throw new Error('this runs as a worker over shared memory');
const port = parentPort;
let hash = createHash('sha256');

port.on('message', ({ slot, length }: RingMessage) => {
  if (slot === null) {
    port.postMessage({ slot, digest: hash.digest('hex') });
    hash = createHash('sha256');
    return;
  }
  hash.update(new Uint8Array(memory, slot * slotBytes, length));
  port.postMessage({ slot });
});
