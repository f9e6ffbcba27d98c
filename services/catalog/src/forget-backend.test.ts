import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import { newId } from '@stowage/common/ids';
import { backendId, startTestCatalog } from './test-catalog.ts';
import type { TestCatalog } from './test-catalog.ts';

const otherId = '01900000-0000-7000-8000-00000000000c';
let catalog: TestCatalog;

beforeAll(async () => {
  catalog = await startTestCatalog();
  await catalog.admin.query(
    "insert into registry.backends (id, name, type, config) values ($1, 'other', 'local_directory', '{}')",
    [otherId],
  );
});
afterAll(() => catalog.close());
beforeEach(() => catalog.reset());

/** Blobs with a replica on each of the backends, in the state that is named. */
async function blobs(count: number, states: Record<string, string>, deleteAfter: string | null = null): Promise<void> {
  await catalog.admin.query(
    `with made as (
      insert into catalog.blobs (id, size, sha256, chunk_crc32c, delete_after)
      select gen_random_uuid(), n, sha256(n::text::bytea), '', $3::timestamptz from generate_series(1, $1) n returning id
    ) insert into catalog.replicas (blob_id, backend_id, key, state)
      select id, backend.key::uuid, 'key', backend.value from made, jsonb_each_text($2) backend`,
    [count, states, deleteAfter],
  );
}

async function countedAndTrue(): Promise<{ counted: unknown[]; real: unknown[] }> {
  const counted = await catalog.admin.query('select * from catalog.backend_usage order by backend_id');
  const real = await catalog.admin.query(`
    select backend_id, count(*) as replicas, sum(b.size)::bigint as bytes
    from catalog.replicas r join catalog.blobs b on b.id = r.blob_id group by backend_id order by backend_id`);
  return { counted: counted.rows, real: real.rows };
}

function forget(acceptLoss = false, first = true) {
  return catalog.content.forgetBackendReplicas({ backendId, acceptLoss, first }, catalog.context());
}

describe('the kept counts', () => {
  test('are the true ones after commits, removals, roll-backs and many writers at once', async () => {
    await Promise.all(Array.from({ length: 12 }, (_, n) => catalog.file(`file ${n}`)));
    await Promise.all(Array.from({ length: 4 }, () => blobs(50, { [backendId]: 'available', [otherId]: 'available' })));
    await Promise.all(
      [backendId, otherId].map((id) =>
        catalog.admin.query(
          `delete from catalog.replicas where backend_id = $1 and blob_id in (select id from catalog.blobs where size % 3 = 0)`,
          [id],
        ),
      ),
    );
    await expect(blobs(5, { [newId()]: 'available' })).rejects.toThrow(/foreign key/);
    const { counted, real } = await countedAndTrue();
    expect(counted).toEqual(real);
    expect(counted).toHaveLength(2);
    const { usage } = await catalog.content.getBackendUsage({}, catalog.context());
    expect(usage.map((entry) => [entry.backendId, String(entry.replicas), String(entry.bytes)])).toEqual(
      counted.map((row) => Object.values(row ?? {})),
    );
  });
});

/** What may be done to replicas, each on a few of what there is. */
const change = fc.oneof(
  fc.record({ do: fc.constant('add' as const), count: fc.integer({ min: 1, max: 5 }), on: fc.constantFrom(0, 1, 2) }),
  fc.record({ do: fc.constant('commit' as const) }),
  fc.record({ do: fc.constant('settle' as const), state: fc.constantFrom('missing', 'available', 'removing') }),
  fc.record({ do: fc.constant('remove' as const), every: fc.integer({ min: 1, max: 3 }) }),
  fc.record({ do: fc.constant('again' as const) }),
  fc.record({ do: fc.constant('roll back' as const) }),
  fc.record({ do: fc.constant('forget' as const) }),
  fc.record({ do: fc.constant('clear' as const) }),
);

type Change = typeof change extends fc.Arbitrary<infer T> ? T : never;

async function carryOut(one: Change, number: number): Promise<void> {
  const { admin } = catalog;
  switch (one.do) {
    case 'add': {
      const on = [
        { [backendId]: 'available' },
        { [otherId]: 'copying' },
        { [backendId]: 'corrupt', [otherId]: 'available' },
      ];
      return blobs(one.count, on[one.on] ?? {});
    }
    case 'commit':
      return void (await catalog.file(`file ${number}`));
    case 'settle':
      return void (await admin.query('update catalog.replicas set state = $1', [one.state]));
    case 'remove':
      return void (await admin.query(
        'delete from catalog.replicas where mod(hashtext(blob_id::text || backend_id::text), $1) = 0',
        [one.every],
      ));
    case 'again':
      return void (await admin.query(
        `insert into catalog.replicas (blob_id, backend_id, key, state) select id, $1, 'key', 'copying' from catalog.blobs
         on conflict (blob_id, backend_id) do update set state = 'copying'`,
        [backendId],
      ));
    case 'roll back':
      await expect(blobs(3, { [backendId]: 'available', [newId()]: 'available' })).rejects.toThrow(/foreign key/);
      return;
    case 'forget':
      return void (await forget(true));
    case 'clear':
      return void (await admin.query('truncate catalog.replicas'));
  }
}

test('the kept counts are the true ones after anything that may be done to replicas', async () => {
  await fc.assert(
    fc
      .asyncProperty(fc.array(change, { minLength: 1, maxLength: 12 }), async (changes) => {
        for (const [number, one] of changes.entries()) {
          await carryOut(one, number);
          const { counted, real } = await countedAndTrue();
          expect(counted).toEqual(real);
        }
      })
      .beforeEach(() => catalog.reset()),
    { numRuns: 40 },
  );
});

describe('forgetting the replicas of a backend', () => {
  test('is refused where the other copies lie on a backend that may be as dead', async () => {
    await blobs(4, { [backendId]: 'available', [otherId]: 'available' });
    const health = (status: string) =>
      catalog.admin.query('update registry.backends set health_status = $1 where id = $2', [status, otherId]);
    await health('unhealthy');
    await expect(forget()).rejects.toMatchObject({ code: 'state_conflict', members: { last_copies: 4 } });
    await health('healthy');
    expect(await forget()).toMatchObject({ forgotten: 4n, lost: 0n });
  });

  test('is refused while one of them is the last good copy, and forgets none', async () => {
    await blobs(10, { [backendId]: 'available', [otherId]: 'available' });
    await blobs(3, { [backendId]: 'available' });
    await blobs(2, { [backendId]: 'unverified', [otherId]: 'corrupt' });
    await expect(forget()).rejects.toMatchObject({ code: 'state_conflict', members: { last_copies: 5 } });
    expect((await countedAndTrue()).real).toMatchObject([{ replicas: '15' }, { replicas: '12' }]);
  });

  test('forgets those that others have, that are not good, and that nobody wants', async () => {
    await blobs(10, { [backendId]: 'available', [otherId]: 'available' });
    await blobs(3, { [backendId]: 'corrupt' });
    await blobs(2, { [backendId]: 'removing' }, '2020-01-01');
    expect(await forget()).toMatchObject({ forgotten: 15n, lost: 0n, more: false });
    const { counted, real } = await countedAndTrue();
    expect(counted).toEqual(real);
    expect(real).toMatchObject([{ backend_id: otherId, replicas: '10' }]);
    const { rows } = await catalog.admin.query('select from catalog.blobs where delete_after is not null');
    expect(rows).toHaveLength(0);
  });

  test('leaves what was made after it was asked for', async () => {
    await blobs(3, { [backendId]: 'available' });
    const madeBefore = timestampFromDate(new Date(Date.now() - 60_000));
    const asked = { backendId, acceptLoss: true, first: true, madeBefore };
    expect(await catalog.content.forgetBackendReplicas(asked, catalog.context())).toMatchObject({ forgotten: 0n });
    await catalog.admin.query(`update catalog.replicas set created_at = now() - interval '2 min'`);
    await blobs(2, { [backendId]: 'available' });
    expect(await catalog.content.forgetBackendReplicas(asked, catalog.context())).toMatchObject({ forgotten: 3n });
    expect((await countedAndTrue()).real).toMatchObject([{ replicas: '2' }]);
  });

  test('and removing the copy beside at the same moment leaves one of both', async () => {
    for (let round = 0; round < 30; round += 1) {
      await catalog.reset();
      await blobs(1, { [backendId]: 'available', [otherId]: 'available' });
      await catalog.admin.query('update catalog.replicas set verified_at = now()');
      const { rows } = await catalog.admin.query<{ id: string }>('select id from catalog.blobs');
      const claim = { blobId: rows[0]?.id ?? '', backendId: otherId, staying: [backendId], verifiedWithinMs: 60_000n };
      const [claimed, forgotten] = await Promise.all([
        catalog.replicas.claimReplicaRemoval(claim, catalog.context()),
        forget().then(
          () => true,
          () => false,
        ),
      ]);
      expect([claimed.accepted, forgotten].filter(Boolean)).toHaveLength(1);
    }
  });

  test('goes page by page, and tells what was lost', async () => {
    await blobs(2_500, { [backendId]: 'available' });
    const pages = [await forget(true), await forget(true, false), await forget(true, false)];
    expect(pages.map(({ forgotten, lost, more }) => [forgotten, lost, more])).toEqual([
      [2_000n, 2_000n, true],
      [500n, 500n, false],
      [0n, 0n, false],
    ]);
    expect((await countedAndTrue()).counted).toEqual([]);
  });
});
