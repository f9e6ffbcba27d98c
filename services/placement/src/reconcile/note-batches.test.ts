import { expect, test } from '@jest/globals';
import { create } from '@bufbuild/protobuf';
import { newId } from '@stowage/common/ids';
import { backgroundContext } from '@stowage/common/rpc/context';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import { NoteReplicasResponseSchema } from '@stowage/proto/stowage/catalog/v1/replica';
import { NoteBatches } from './note-batches.ts';

const context = backgroundContext(new AbortController().signal, 'job');
const note = () => ({ blobId: newId(), backendId: newId(), state: ReplicaState.COPYING });

test('what comes while a call is under way goes with the next, and each hears of its own', async () => {
  const sizes: number[] = [];
  const gate = Promise.withResolvers<void>();
  const batches = new NoteBatches(
    {
      noteReplicas: async ({ notes = [] }) => {
        sizes.push(notes.length);
        if (sizes.length === 1) await gate.promise;
        return create(NoteReplicasResponseSchema, { accepted: notes.map((_, index) => index % 2 === 0) });
      },
    },
    context,
  );
  const first = [note(), note(), note()].map((one) => batches.note(one));
  await new Promise((resolve) => setImmediate(resolve));
  const second = [note(), note()].map((one) => batches.note(one));
  gate.resolve();
  expect(await Promise.all(first)).toEqual([true, false, true]);
  expect(await Promise.all(second)).toEqual([true, false]);
  expect(sizes).toEqual([3, 2]);
});

test('a call that fails is told to all that waited for it, and ends nothing', async () => {
  let fails = true;
  const batches = new NoteBatches(
    {
      noteReplicas: async ({ notes = [] }) => {
        if (fails) throw new Error('down');
        return create(NoteReplicasResponseSchema, { accepted: notes.map(() => true) });
      },
    },
    context,
  );
  const results = await Promise.allSettled([note(), note()].map((one) => batches.note(one)));
  expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  fails = false;
  expect(await batches.note(note())).toBe(true);
});
