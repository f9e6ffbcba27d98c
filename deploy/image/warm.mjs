// Fills the compile cache: starts each command as far as it gets without a database, and one with telemetry, which all
// load alike.
import { spawn } from 'node:child_process';
import { once } from 'node:events';

const commands = ['gateway', 'catalog', 'upload', 'backend-registry', 'placement', 'export', 'migrate'];
const nowhere = { STOWAGE_DATABASE_URL: 'postgres://127.0.0.1:1/none' };
const traced = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' };
const limitMs = 60_000;

for (const command of commands) await warm(command, {});
await warm('gateway', traced);

async function warm(command, telemetry) {
  const child = spawn(process.execPath, ['launcher/src/command.ts', command], {
    env: { ...process.env, ...nowhere, ...telemetry },
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: limitMs,
    killSignal: 'SIGKILL',
  });
  let output = '';
  child.stdout.on('data', (piece) => {
    output += piece;
    // Now everything is loaded; Node writes the cache as the process ends.
    if (output.includes('Waiting for the database.')) child.kill('SIGTERM');
  });
  const [code, signal] = await once(child, 'close');
  if (signal !== null || !output.includes('Waiting for the database.')) {
    throw new Error(`${command} ended with ${code ?? signal} before it waited for its database:\n${output}`);
  }
}
