import { expect, test } from '@jest/globals';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { DescService } from '@bufbuild/protobuf';
import * as operations from '../bytes/operations.ts';
import { pathOf } from '../rpc/contract.ts';
import { byteCallersOf, mayStateUser, rpcCallersOf } from './callers.ts';

const generated = join(import.meta.dirname, '../../../../proto/gen/stowage');

function isService(value: unknown): value is DescService {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'service';
}

async function allServices(): Promise<DescService[]> {
  const files = (await readdir(generated, { recursive: true })).filter((file) => /_pb\.[jt]s$/.test(file));
  const modules = await Promise.all(
    files.map(async (file): Promise<Record<string, unknown>> => import(join(generated, file))),
  );
  return modules.flatMap((module) => Object.values(module).filter(isService));
}

test('every call of every service has somebody who may make it', async () => {
  const methods = (await allServices()).flatMap((service) => service.methods);
  expect(methods.length).toBeGreaterThan(60);
  expect(methods.map(pathOf).filter((path) => rpcCallersOf(path).length === 0)).toEqual([]);
});

test('every byte operation has somebody who may use it', () => {
  const paths = Object.values(operations).flatMap((value) => ('path' in value ? [value.path] : []));
  expect(paths.length).toBeGreaterThan(9);
  expect(paths.filter((path) => byteCallersOf(path).length === 0)).toEqual([]);
});

test('what is not known is nobody’s', () => {
  expect(rpcCallersOf('/stowage.catalog.v1.TreeService/Nothing')).toEqual([]);
  expect(byteCallersOf('nothing')).toEqual([]);
});

test('only the gateway states a user, and upload where it makes the file', () => {
  const commit = '/stowage.catalog.v1.ContentService/CommitFile';
  expect(mayStateUser('gateway', '/stowage.catalog.v1.TreeService/PurgeNode')).toBe(true);
  expect(mayStateUser('upload', commit)).toBe(true);
  expect(mayStateUser('upload', '/stowage.catalog.v1.TreeService/GetNode')).toBe(false);
  for (const other of ['catalog', 'placement', 'backend-registry', 'export'] as const)
    expect(mayStateUser(other, commit)).toBe(false);
});
