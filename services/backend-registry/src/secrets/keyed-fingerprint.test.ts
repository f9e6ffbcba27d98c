import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { newId } from '@stowage/common/ids';
import { fingerprintOf } from '@stowage/common/rpc/context';
import type { CallContext } from '@stowage/common/rpc/context';
import { randomBytes } from 'node:crypto';
import { refuses } from '../stores/test-store.ts';
import { context, startTestRegistry } from '../test-registry.ts';
import type { TestRegistry } from '../test-registry.ts';
import { KeyRing, keyBytes } from './key-ring.ts';
import type { SecretKey } from './key-ring.ts';

const user = newId();
const body = { name: 'dav', config: { username: 'ann', password: 'hush' } };
let registry: TestRegistry;

beforeAll(async () => {
  registry = await startTestRegistry();
});
afterAll(() => registry.close());
beforeEach(() => registry.reset());

const key = (id: string): SecretKey => ({ id, key: randomBytes(keyBytes) });

function as(idempotencyKey: string, fingerprint = fingerprintOf(body)): CallContext {
  const idempotency = { key: idempotencyKey, route: 'POST /api/backends', fingerprint };
  return { ...context(), actor: { userId: user, username: 'ann', role: 'admin' }, idempotency };
}

/** What the database keeps of a request that is made under these keys. */
async function kept(ring: KeyRing, idempotencyKey: string): Promise<string> {
  const replica = registry.replica({ ring });
  await replica.backends.createBackend(backendNamed(idempotencyKey), as(idempotencyKey));
  const { rows } = await registry.admin.query<{ row: string; fingerprint: string }>(
    'select k::text as row, fingerprint from jobs.idempotency_keys k where key = $1',
    [idempotencyKey],
  );
  expect(rows).toHaveLength(1);
  expect(rows[0]?.row).not.toContain(fingerprintOf(body));
  return rows[0]?.fingerprint ?? '';
}

function backendNamed(name: string) {
  const config = { url: 'http://127.0.0.1:9/', root_path: `/${name}`, username: 'ann', password: 'hush' };
  return { name, type: 'webdav', config };
}

test('what is kept of a request tells nothing of its body to who has no key, nor that two bodies are the same', async () => {
  const ring = new KeyRing([key('one')]);
  expect(await kept(ring, 'a')).not.toBe(await kept(ring, 'b'));
});

test('the same request is known again while keys are changed, and another body is refused', async () => {
  const [old, young] = [key('old'), key('young')];
  await kept(new KeyRing([old]), 'again');
  const steps = [
    [old, young],
    [young, old],
  ].map((keys) => registry.replica({ ring: new KeyRing(keys) }).backends);
  for (const backends of steps) {
    const { backend } = await backends.createBackend(backendNamed('again'), as('again'));
    expect(backend?.name).toBe('again');
    const other = backends.createBackend(backendNamed('again'), as('again', fingerprintOf({})));
    await refuses(other, 'idempotency_key_reused');
  }
});
