import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { MessageInitShape } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { AppError } from '@stowage/common/errors';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { NodeKind, ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import type { ReplicaNoteSchema } from '@stowage/proto/stowage/catalog/v1/replica';
import { ModelCatalog } from '@stowage/tests/support/model-catalog';
import { replicaStates } from './replicas.ts';
import { backendId as first, commitRequest, keeping, startTestCatalog } from './test-catalog.ts';
import type { TestCatalog } from './test-catalog.ts';

const runs = 60;
const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const backends = [first, newId(), newId()];
/** One that is not there. */
const places = [...backends, newId()];

let catalog: TestCatalog;
beforeAll(async () => {
  catalog = await startTestCatalog();
  for (const id of backends.slice(1))
    await catalog.admin.query(
      `insert into registry.backends (id, name, type, config) values ($1, $1::uuid::text, 's3', '{}')`,
      [id],
    );
});
afterAll(() => catalog.close());
beforeEach(() => catalog.reset());

const at = () => catalog.context();
const blob = fc.nat(2);
const place = fc.nat(places.length - 1);
const state = fc.constantFrom('available', 'corrupt', 'missing');
/** In minutes; no sum of them is so near to a limit that the time that a run itself takes decides anything. */
const past = fc.constantFrom(0.9, 28.7, 61.3, 119.1, 121.7, 8 * 24 * 60);

/** One call of each kind, with small numbers for blobs and backends, so that they meet. */
const step = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('commit' as const), blob, on: fc.subarray([0, 1, 2], { minLength: 1 }) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('purge' as const), blob }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('begin' as const), blob, place }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('add' as const), blob, place }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('settle' as const),
      blob,
      place,
      state,
      agoMinutes: fc.constantFrom(0, 44.9, 500),
      noted: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('report' as const),
      blob,
      place,
      state: fc.constantFrom('corrupt', 'missing'),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('claim' as const), blob, place, staying: fc.subarray([0, 1, 2, 3]) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('keep' as const), blob, place }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('forget' as const), blob, place }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('claim blob' as const), blob }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('wait' as const), minutes: past }) },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

const settled = { available: ReplicaState.AVAILABLE, corrupt: ReplicaState.CORRUPT, missing: ReplicaState.MISSING };
const named = (word: string): keyof typeof settled =>
  word === 'available' ? 'available' : word === 'corrupt' ? 'corrupt' : 'missing';

/** The real catalog and the model, with the same blobs and the same time. */
class Pair {
  readonly ids = Array.from({ length: 3 }, () => ({ blobId: newId(), fileId: newId() }));
  now = Date.now();
  readonly model = new ModelCatalog(() => this.now, keeping.graceMs);

  constructor() {
    for (const id of backends) this.model.backends.add(id);
  }

  /** What both answered. */
  async take(taken: Step): Promise<{ real: unknown; model: unknown }> {
    if (taken.do === 'wait') return this.#wait(taken.minutes * minuteMs);
    const { blobId, fileId } = this.ids[taken.blob] ?? { blobId: '', fileId: '' };
    const { model } = this;
    const backendId = 'place' in taken ? (places[taken.place] ?? '') : '';
    const replica = { blobId, backendId };
    switch (taken.do) {
      case 'commit':
        return {
          real: await this.#commit(blobId, fileId, taken.on),
          model: model.commitFile(
            fileId,
            blobId,
            'document',
            taken.on.map((n) => backends[n] ?? ''),
          ),
        };
      case 'purge':
        await this.#purge(fileId);
        return { real: null, model: (model.purgeFile(blobId, fileId), null) };
      case 'begin':
        return {
          real: await this.#note({ ...replica, key: 'k', state: ReplicaState.COPYING }),
          model: model.beginReplica(blobId, backendId),
        };
      case 'add':
        return {
          real: await this.#note({ ...replica, state: ReplicaState.UNVERIFIED }),
          model: model.addReplica(blobId, backendId),
        };
      case 'settle': {
        const [word, ago] = [named(taken.state), taken.agoMinutes * minuteMs];
        const found = { ...replica, state: settled[word], readAgoMs: BigInt(ago) };
        if (taken.noted) expect(await this.#note(found)).toBe(true);
        else await catalog.content.settleReplica(found, at());
        return { real: null, model: (model.settleReplica(blobId, backendId, word, ago), null) };
      }
      case 'report': {
        const word = taken.state === 'corrupt' ? 'corrupt' : 'missing';
        await catalog.content.reportReplica({ ...replica, state: settled[word] }, at());
        return { real: null, model: (model.reportReplica(blobId, backendId, word), null) };
      }
      case 'claim': {
        const staying = taken.staying.map((n) => places[n] ?? '');
        const claim = { ...replica, staying, verifiedWithinMs: BigInt(hourMs) };
        return {
          real: (await catalog.replicas.claimReplicaRemoval(claim, at())).accepted,
          model: model.claimReplicaRemoval(blobId, backendId, staying, hourMs),
        };
      }
      case 'keep':
        return {
          real: (await catalog.replicas.keepReplica(replica, at())).accepted,
          model: model.keepReplica(blobId, backendId),
        };
      case 'forget':
        await catalog.content.forgetReplica(replica, at());
        return { real: null, model: (model.forgetReplica(blobId, backendId), null) };
      case 'claim blob': {
        const { replicas } = await catalog.content.claimBlobRemoval({ blobId }, at());
        return { real: replicas.map(({ backendId: id }) => id).sort(), model: model.claimBlobRemoval(blobId).sort() };
      }
    }
  }

  /** What both know of the blobs now. */
  async facts(): Promise<{ real: unknown; model: unknown }> {
    const real: unknown[] = [];
    const model: unknown[] = [];
    for (const { blobId } of this.ids) {
      const got = await catalog.replicas.getBlob({ blobId }, at()).catch((error: unknown) => {
        if (error instanceof AppError && error.code === 'not_found') return { blob: undefined };
        throw error;
      });
      const known = this.model.getBlob(blobId);
      const agoOf = (id: string): number | null => {
        const verifiedAt = known?.replicas.get(id)?.verifiedAt ?? null;
        return verifiedAt === null ? null : this.now - verifiedAt;
      };
      // What the run itself takes is no difference.
      const near = (ago: number | null, wanted: number | null): number | null =>
        ago !== null && wanted !== null && ago >= wanted - 1_000 && ago < wanted + minuteMs ? wanted : ago;
      const shown = got.blob?.replicas.map(({ backendId: id, state: is, verifiedAgoMs }) =>
        [id, is, near(verifiedAgoMs === undefined ? null : Number(verifiedAgoMs), agoOf(id))].join(),
      );
      real.push(shown?.sort() ?? null);
      const wanted =
        known && [...known.replicas].map(([id, { state: is }]) => [id, replicaStates[is], agoOf(id)].join());
      model.push(wanted?.sort() ?? null);
    }
    const { rows } = await catalog.admin.query<{ id: string }>('select id from catalog.blobs order by id');
    const ids = rows.map(({ id }) => id);
    return { real: { real, ids }, model: { real: model, ids: [...this.model.blobs.keys()].sort() } };
  }

  /** Time goes by in PostgreSQL by making all that was earlier. */
  async #wait(ms: number): Promise<{ real: unknown; model: unknown }> {
    await catalog.admin.query(
      `update catalog.replicas set verified_at = verified_at - $1::int * interval '1 ms',
        removing_since = removing_since - $1::int * interval '1 ms'`,
      [ms],
    );
    await catalog.admin.query(`update catalog.blobs set delete_after = delete_after - $1::int * interval '1 ms'`, [ms]);
    this.now += ms;
    return { real: null, model: null };
  }

  async #commit(blobId: string, fileId: string, on: readonly number[]): Promise<boolean> {
    const request = commitRequest(fileId, rootDirectoryId);
    const replicas = on.map((n) => ({ backendId: backends[n] ?? '', key: 'k' }));
    const content = { ...request, fileId, blob: { ...request.blob, id: blobId }, replicas };
    try {
      return (await catalog.content.commitFile(content, at())).created;
    } catch (error) {
      if (error instanceof AppError && error.code === 'gone') return false;
      throw error;
    }
  }

  async #note(note: MessageInitShape<typeof ReplicaNoteSchema>): Promise<boolean> {
    return (await catalog.replicas.noteReplicas({ notes: [note] }, at())).accepted[0] ?? false;
  }

  async #purge(id: string): Promise<void> {
    try {
      await catalog.tree.recycleNode({ id, kind: NodeKind.FILE }, at());
      await catalog.tree.purgeNode({ id, kind: NodeKind.FILE }, at());
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'not_found') throw error;
    }
  }
}

test('the model that simulations run on answers as the catalog does, whatever is asked in whatever order', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 60, size: 'max' }), async (steps) => {
      await catalog.reset();
      const pair = new Pair();
      for (const [n, taken] of steps.entries()) {
        const { real, model } = await pair.take(taken);
        expect({ n, taken, answer: real }).toEqual({ n, taken, answer: model });
        const facts = await pair.facts();
        expect({ n, taken, facts: facts.real }).toEqual({ n, taken, facts: facts.model });
      }
    }),
    { numRuns: runs },
  );
}, 120_000);
