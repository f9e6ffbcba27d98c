// The kernel keeps a signal from process 1 that has no handler for it: until a command has its own, this one ends it.
process.on('SIGTERM', () => {
  if (process.listenerCount('SIGTERM') === 1) process.exit(0);
});

/** What the image can run; nothing of one is loaded for another. */
const commands = new Map<string, () => Promise<unknown>>([
  ['gateway', () => import('../../services/gateway/src/main.ts')],
  ['catalog', () => import('../../services/catalog/src/main.ts')],
  ['upload', () => import('../../services/upload/src/main.ts')],
  ['backend-registry', () => import('../../services/backend-registry/src/main.ts')],
  ['placement', () => import('../../services/placement/src/main.ts')],
  ['export', () => import('../../services/export/src/main.ts')],
  ['migrate', () => import('./migrate.ts')],
  ['smoke', () => import('./smoke.ts')],
  ['reseal-secrets', () => import('./reseal-secrets.ts')],
  ['list-content', () => import('./list-content.ts')],
  ['apply', () => import('./apply.ts')],
]);

const [name, ...more] = process.argv.slice(2);
const run = name !== undefined && more.length === 0 ? commands.get(name) : undefined;
if (run) {
  await run();
} else {
  const given = name === undefined ? 'None was given' : `"${[name, ...more].join(' ')}" is none`;
  process.stderr.write(`Give one command of ${[...commands.keys()].join(', ')}. ${given}.\n`);
  process.exitCode = 1;
}
