/**
 * The program of the preview process: turns hostile pictures into small WebPs, apart from the gateway, so that a bomb
 * or a flaw in a decoder costs this process only. Started by `preview-process.ts` as `preview-worker.ts <pixels>
 * <memory bytes>`; says `ready`, then answers each request with one reply.
 */
import sharp from 'sharp';
import type { PreviewReply, PreviewRequest } from './preview-process.ts';

const loaders = ['Png', 'Jpeg', 'Nsgif', 'Webp', 'Heif', 'Tiff'].map((name) => `VipsForeignLoad${name}Buffer`);
const formats: ReadonlySet<string> = new Set(['png', 'jpeg', 'gif', 'webp', 'heif', 'tiff']);
const maxPages = 5_000;
const memoryCheckMs = 50;

const pixels = Number(process.argv[2]);
const memoryBytes = Number(process.argv[3]);

/** `process.exit` waits for the thread that decodes, which may never end. */
function die(): void {
  process.kill(process.pid, 'SIGKILL');
}

function reply(message: PreviewReply | 'ready', sent: () => void = () => undefined): void {
  process.send?.(message, undefined, undefined, sent);
}

async function makeWebp({ image, size }: PreviewRequest): Promise<PreviewReply> {
  const options = { sequentialRead: true, failOn: 'error', pages: 1 } as const;
  const header = await sharp(image, { ...options, limitInputPixels: false }).metadata();
  if (!formats.has(header.format)) return { problem: 'unreadable' };
  if (header.width * header.height > pixels || (header.pages ?? 1) > maxPages) return { problem: 'too_much' };
  const webp = await sharp(image, { ...options, limitInputPixels: pixels })
    .autoOrient()
    .resize({ width: size, height: size, fit: 'inside', withoutEnlargement: true })
    .webp({ quality: 80 })
    .toBuffer();
  return { webp };
}

async function answer(request: PreviewRequest): Promise<void> {
  const watch = setInterval(() => {
    if (process.memoryUsage.rss() > memoryBytes) reply({ problem: 'memory' }, die);
  }, memoryCheckMs);
  try {
    reply(await makeWebp(request));
  } catch {
    reply({ problem: 'unreadable' });
  } finally {
    clearInterval(watch);
  }
}

sharp.concurrency(1);
sharp.cache(false);
// The decoders of SVG, PDF and all else are out of reach, whatever a header claims to be.
sharp.block({ operation: ['VipsForeignLoad'] });
sharp.unblock({ operation: loaders });

process.on('disconnect', die);
process.on('message', (request: PreviewRequest) => void answer(request));
reply('ready');
