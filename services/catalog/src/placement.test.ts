import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { rootDirectoryId } from '@stowage/common/ids';
import { NodeKind, PlacementState, ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import { placementState } from './placement.ts';
import type { ReplicaRow } from './replicas.ts';
import { backendId, idOf, startTestCatalog } from './test-catalog.ts';
import type { TestCatalog } from './test-catalog.ts';

let catalog: TestCatalog;
beforeAll(async () => {
  catalog = await startTestCatalog();
});
afterAll(() => catalog.close());

const at = () => catalog.context();

describe('placement', () => {
  const on = (backend: string, state: ReplicaRow['state']): ReplicaRow => ({
    backend_id: backend,
    backend_name: 'disk',
    key: 'k',
    state,
    verified_at: null,
  });
  const row = (state: ReplicaRow['state'], index: number): ReplicaRow => on(['a', 'b', 'c', 'd'][index] ?? '', state);
  const all = { disabled: [], unhealthy: [] };

  test.each([
    [[], 1, PlacementState.LOST],
    [['corrupt', 'missing', 'copying', 'removing'], 1, PlacementState.LOST],
    [['available'], 1, PlacementState.SATISFIED],
    [['available', 'corrupt'], 1, PlacementState.SATISFIED],
    [['available', 'removing'], 1, PlacementState.SATISFIED],
    [['available'], 2, PlacementState.CONVERGING],
    [['available', 'copying'], 2, PlacementState.CONVERGING],
    [['unverified'], 1, PlacementState.CONVERGING],
    [['available', 'missing'], 2, PlacementState.DEGRADED],
    [['unverified', 'corrupt'], 1, PlacementState.DEGRADED],
  ] as const)('of %j with %d wanted is %d', (states, wanted, expected) => {
    const places = ['a', 'b'].slice(0, wanted);
    expect(placementState(states.map(row), { replicas: wanted, places }, all)).toBe(expected);
  });

  test.each([
    ['elsewhere', [on('z', 'available'), on('a', 'copying')], ['a'], all, PlacementState.CONVERGING],
    [
      'on a disabled backend, with another to go to',
      [on('z', 'available')],
      ['a'],
      { ...all, disabled: ['z'] },
      PlacementState.CONVERGING,
    ],
    [
      'on a disabled backend, with none to go to',
      [on('a', 'available')],
      [],
      { ...all, disabled: ['a'] },
      PlacementState.DEGRADED,
    ],
    ['on a backend that is away', [on('a', 'available')], [], { ...all, unhealthy: ['a'] }, PlacementState.DEGRADED],
    [
      'on a backend that is away, to be copied from there',
      [on('z', 'available')],
      ['a'],
      { ...all, unhealthy: ['z'] },
      PlacementState.DEGRADED,
    ],
    [
      'where it is wanted, and on one that is away',
      [on('a', 'available'), on('z', 'available')],
      ['a'],
      { ...all, unhealthy: ['z'] },
      PlacementState.SATISFIED,
    ],
  ] as const)('of a copy %s', (_what, replicas, places, absent, expected) => {
    expect(placementState(replicas, { replicas: 1, places }, absent)).toBe(expected);
  });

  test('before there is a policy is satisfied by whatever can be read', () => {
    expect(placementState([on('a', 'available')], null, all)).toBe(PlacementState.SATISFIED);
  });

  test('follows the policy of the class, else the default one', async () => {
    const file = await catalog.file('a.txt');
    const get = () => catalog.tree.getNode({ ...idOf(file), withPlacement: true }, at());
    expect(await get()).toMatchObject({
      placement: {
        state: PlacementState.SATISFIED,
        replicas: [{ backendName: 'disk', state: ReplicaState.AVAILABLE }],
      },
    });
    const policy = 'insert into placement.policies (file_class, replicas) values ($1, $2)';
    await catalog.admin.query(policy, ['default', 2]);
    expect(await get()).toMatchObject({ placement: { state: PlacementState.DEGRADED } });
    await catalog.admin.query(policy, ['document', 1]);
    const place = "insert into placement.policy_backends (file_class, position, backend_id) values ('document', 0, $1)";
    await catalog.admin.query(place, [backendId]);
    expect(await get()).toMatchObject({ placement: { state: PlacementState.SATISFIED } });
    await catalog.admin.query('update registry.backends set enabled = false');
    expect(await get()).toMatchObject({ placement: { state: PlacementState.DEGRADED } });
    await catalog.admin.query('update registry.backends set enabled = true');
    expect((await catalog.tree.getNode(idOf(file), at())).placement).toBeUndefined();
    const root = { id: rootDirectoryId, kind: NodeKind.DIRECTORY, withPlacement: true };
    expect((await catalog.tree.getNode(root, at())).placement).toBeUndefined();
  });
});
