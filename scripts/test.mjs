import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const flags = ['--disable-warning=ExperimentalWarning', '--experimental-vm-modules'];
const jest = ['node_modules/jest/bin/jest.js', '--runInBand', '--forceExit', ...process.argv.slice(2)];
const { status, signal } = spawnSync(process.execPath, [...flags, ...jest], { cwd: root, stdio: 'inherit' });
process.exit(status ?? (signal ? 1 : 0));
