import { expect, test } from '@jest/globals';
import { spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');

interface Package {
  workspaces?: string[];
  dependencies?: Record<string, string>;
  devDependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
}

interface Locked {
  link?: boolean;
  integrity?: string;
}

const read = (file: string): unknown => JSON.parse(readFileSync(join(root, file), 'utf8'));
const manifest = read('package.json') as Package;
const { packages } = read('package-lock.json') as { packages: Record<string, Locked> };
const manifests = ['package.json', ...(manifest.workspaces ?? []).map((path) => `${path}/package.json`)].flatMap(
  (pattern) => globSync(pattern, { cwd: root }),
);
const installed = Object.entries(packages).filter(([path, { link }]) => path.includes('node_modules/') && !link);

test('every dependency is locked by the checksum of its content (T70)', () => {
  expect(installed.length).toBeGreaterThan(100);
  expect(installed.filter(([, { integrity }]) => !integrity?.startsWith('sha512-')).map(([path]) => path)).toEqual([]);
});

test('no dependency runs anything at its installation, here or in the image (T70)', () => {
  expect(readFileSync(join(root, '.npmrc'), 'utf8')).toMatch(/^ignore-scripts=true$/m);
  const { stdout } = spawnSync('npm', ['config', 'get', 'ignore-scripts'], { cwd: root, encoding: 'utf8' });
  expect(stdout.trim()).toBe('true');
  expect(readFileSync(join(root, 'deploy/Dockerfile'), 'utf8')).toMatch(/^RUN npm ci --ignore-scripts /m);
});

test('every dependency is of an exact version (T70)', () => {
  expect(manifests.length).toBeGreaterThan(5);
  const loose = manifests.flatMap((file) => {
    const { dependencies, devDependencies, optionalDependencies } = read(file) as Package;
    const all = { ...dependencies, ...devDependencies, ...optionalDependencies };
    return Object.entries(all).filter(([, version]) => !/^(npm:[^\s|]+@)?\d+\.\d+\.\d+(-[\w.]+)?$/.test(version));
  });
  expect(loose).toEqual([]);
});
