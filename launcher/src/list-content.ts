import { json } from 'node:stream/consumers';
import { listSettings, openContent } from '@stowage/backend-registry/list-content';
import type { Place } from '@stowage/backend-registry/list-content';
import { settingsOrExit } from '@stowage/common/runtime/settings-or-exit';

const { settings } = settingsOrExit({ settings: listSettings }, process.env);
try {
  const content = await openContent(placeIn(await json(process.stdin)), settings);
  const { backendId } = content;
  say(backendId === null ? 'There is no identity marker: is this the place?' : `This is backend ${backendId}.`);
  let unreadable = 0;
  for await (const { id, size, sha256 } of content.blobs) {
    process.stdout.write(`${id} ${size} ${sha256 ?? '-'}\n`);
    if (sha256 === null) unreadable += 1;
  }
  content.close();
  if (unreadable > 0) {
    say(`${unreadable} could not be read.`);
    process.exitCode = 1;
  }
} catch (error) {
  say(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}

/** What POST /api/backends takes; it has no name here. */
function placeIn(body: unknown): Place {
  const { type, config }: { type?: unknown; config?: unknown } = Object(body);
  if (typeof type === 'string' && typeof config === 'object' && config !== null) return { type, config: { ...config } };
  throw new Error(
    'Say on the standard input which backend: { "type": …, "config": { … } }, as for POST /api/backends.',
  );
}

function say(line: string): void {
  process.stderr.write(`${line}\n`);
}
