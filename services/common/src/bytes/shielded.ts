import { Readable } from 'node:stream';
import { unavailable } from '../errors.ts';

const bufferBytes = 1024 * 1024;

/**
 * A view of `body`, with back-pressure, whose destruction leaves `body` as it is: paused, with the rest in it for whoever
 * reads on. A body that breaks off breaks the view. So does a reader that takes nothing for `stallMs` while there is
 * something: with `unavailable`. Nothing is taken from `body` before the view is read; `onTaken` is told of each piece
 * that is.
 */
export function shielded(body: Readable, stallMs: number, onTaken: () => void = () => undefined): Readable {
  let stalled: NodeJS.Timeout | undefined;
  let attached = false;
  const onStall = (): void => void view.destroy(unavailable('Content is not taken just now.'));
  const onData = (piece: Buffer): void => {
    onTaken();
    if (view.push(piece)) return;
    body.pause();
    stalled ??= setTimeout(onStall, stallMs);
  };
  const onEnd = (): void => void view.push(null);
  const onBroken = (error?: Error): void => {
    if (!body.readableEnded) view.destroy(error ?? new Error('the body broke off'));
  };
  const view = new Readable({
    highWaterMark: bufferBytes,
    read: () => {
      clearTimeout(stalled);
      stalled = undefined;
      if (!attached) body.on('data', onData);
      attached = true;
      body.resume();
    },
    destroy: (error, done) => {
      clearTimeout(stalled);
      body.off('data', onData).off('end', onEnd).off('close', onBroken);
      if (attached && !body.readableEnded) body.pause();
      done(error);
    },
  });
  // Whoever gets the view may not have begun to listen when it breaks.
  view.on('error', () => undefined);
  // Stays for good: what breaks later must not bring the process down.
  body.on('error', onBroken);
  if (body.readableEnded) onEnd();
  else if (body.destroyed) onBroken();
  else {
    body.on('end', onEnd).on('close', onBroken);
    stalled = setTimeout(onStall, stallMs);
  }
  return view;
}
