import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import type { CallContext } from '@stowage/common/rpc/context';
import { OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import { UploadState, UploadStateSchema } from '@stowage/proto/stowage/upload/v1/upload';
import type { FinalizeUploadResponse, UploadTargetSchema } from '@stowage/proto/stowage/upload/v1/upload';
import { as, bodyOf, refusalOf, startTestUploads, until, uploadOf } from './test-upload.ts';
import type { TestProcess, TestUploads } from './test-upload.ts';

type Target = MessageInitShape<typeof UploadTargetSchema>;

let system: TestUploads;
let one: TestProcess;
let other: TestProcess;
beforeAll(async () => {
  system = await startTestUploads();
  one = await system.start();
  other = await system.start();
});
afterAll(() => system.close());
beforeEach(() => system.neighbours.reset());

const user = newId();
const content = 'hello, world';
const rightHash = createHash('sha256').update(content).digest();
const wrongHash = Buffer.alloc(32, 1);

async function create(target: Target = { filename: 'a.txt' }, length = BigInt(content.length)): Promise<string> {
  return uploadOf(await one.uploads.createUpload({ length, target }, as(user))).id;
}

async function complete(target?: Target): Promise<string> {
  const id = await create(target);
  await one.append({ id, offset: 0n }, bodyOf(content), as(user));
  return id;
}

function finalize(
  id: string,
  target: Target = {},
  context: CallContext = as(user),
  by = one,
): Promise<FinalizeUploadResponse> {
  return by.uploads.finalizeUpload({ id, target }, context);
}

async function stateOf(id: string): Promise<{ state: string; offset: bigint }> {
  const { state, offset } = uploadOf(await other.uploads.getUpload({ id }, as(user)));
  return { state: UploadStateSchema.value[state]?.localName ?? '', offset };
}

function keyed(key: string, fingerprint = 'f'): CallContext {
  return as(user, { idempotency: { key, route: 'POST /finalize', fingerprint } });
}

describe('a complete upload', () => {
  test('becomes a file, with what was found in its content', async () => {
    const id = await complete({ filename: 'a.txt', mediaType: 'image/png' });
    const { file, created } = await finalize(id);
    expect(created).toBe(true);
    expect(file).toMatchObject({ name: 'a.txt', parentId: rootDirectoryId });
    expect(file?.file).toMatchObject({ size: 12n, mediaType: 'text/plain', fileClass: 'document' });
    expect(Buffer.from(file?.file?.sha256 ?? [])).toEqual(rightHash);
    expect(uploadOf(await one.uploads.getUpload({ id }, as(user)))).toMatchObject({
      state: UploadState.FINALIZED,
      offset: 12n,
      fileId: file?.id,
    });
    const rows = await system.sql('select backend_id, sealed_chunk_crc32c from upload.uploads where id = $1', [id]);
    expect(rows).toEqual([{ backend_id: null, sealed_chunk_crc32c: null }]);
  });

  test('takes what is said now before what was said at creation', async () => {
    const [before, now] = [newId(), newId()];
    const id = await complete({ filename: 'a', directoryId: before, fileClass: 'one', sha256: wrongHash });
    const { file } = await finalize(id, { filename: 'b', directoryId: now, fileClass: 'two', sha256: rightHash });
    expect(file).toMatchObject({ name: 'b', parentId: now, file: { fileClass: 'two' } });
  });

  test('of no bytes is a file too', async () => {
    const id = await create({ filename: 'empty' }, 0n);
    expect((await finalize(id)).file?.file?.size).toBe(0n);
  });

  test('again is the same file, as it is now, and not created', async () => {
    const id = await complete();
    const first = await finalize(id);
    const renamed = system.neighbours.files.get(first.file?.id ?? '');
    if (renamed) renamed.name = 'renamed.txt';
    expect(await finalize(id, { filename: 'other' })).toMatchObject({
      created: false,
      file: { id: first.file?.id, name: 'renamed.txt' },
    });
    expect(system.neighbours.count('sealBlob')).toBe(1);
  });

  test('whose file was deleted for good since is gone, and makes no new one', async () => {
    const id = await complete();
    await finalize(id);
    system.neighbours.files.clear();
    expect((await refusalOf(finalize(id))).code).toBe('gone');
    expect(system.neighbours.files.size).toBe(0);
  });

  test('many times at once, in two processes, is one file that was created once', async () => {
    const id = await complete();
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, index) => finalize(id, {}, as(user), index % 2 ? one : other)),
    );
    expect(new Set(answers.map(({ file }) => file?.id)).size).toBe(1);
    expect(answers.filter(({ created }) => created)).toHaveLength(1);
    expect(system.neighbours.files.size).toBe(1);
  });

  test('is created though another finalize, refused for its sha256, opened it again meanwhile', async () => {
    const id = await complete();
    const gate = Promise.withResolvers<void>();
    system.neighbours.gates.set('commitFile', gate.promise);
    const right = finalize(id);
    await until(() => system.neighbours.count('commitFile') === 1);
    await system.sql("update upload.uploads set state = 'open' where id = $1", [id]);
    gate.resolve();
    expect((await right).created).toBe(true);
    expect((await stateOf(id)).state).toBe('FINALIZED');
  });

  test('takes nothing more, but an empty body at its end', async () => {
    const id = await complete();
    await finalize(id);
    expect(await one.append({ id, offset: 12n }, bodyOf(), as(user))).toMatchObject({ offset: 12n, complete: true });
    expect(await refusalOf(one.append({ id, offset: 12n }, bodyOf('x'), as(user)))).toMatchObject({
      code: 'offset_conflict',
      members: { offset: 12 },
    });
    expect(await refusalOf(one.append({ id, offset: 0n, bodyLength: 0n }, bodyOf(), as(user)))).toMatchObject({
      code: 'offset_conflict',
    });
  });

  test('can not be ended any more: the file stays', async () => {
    const id = await complete();
    await finalize(id);
    expect((await refusalOf(one.uploads.terminateUpload({ id }, as(user)))).code).toBe('state_conflict');
    expect(system.neighbours.files.size).toBe(1);
  });
});

describe('what stands in the way', () => {
  test('missing bytes: it says how far it is, and goes on taking them', async () => {
    const id = await create();
    await one.append({ id, offset: 0n }, bodyOf('hello'), as(user));
    expect(await refusalOf(finalize(id))).toMatchObject({
      code: 'upload_incomplete',
      members: { offset: 5, length: 12 },
    });
    expect(await stateOf(id)).toEqual({ state: 'OPEN', offset: 5n });
    await one.append({ id, offset: 5n }, bodyOf(', world'), as(user));
    expect((await finalize(id)).created).toBe(true);
  });

  test('bytes that a power cut took after the offset was read: it is open again', async () => {
    const id = await complete();
    const { promise, resolve } = Promise.withResolvers<void>();
    system.neighbours.gates.set('sealBlob', promise);
    const refused = refusalOf(finalize(id));
    const staged = system.neighbours.staged.get(id);
    if (staged) staged.bytes = staged.bytes.subarray(0, 4);
    resolve();
    const refusal = await refused;
    expect(refusal.code).toBe('upload_incomplete');
    expect(await stateOf(id)).toEqual({ state: 'OPEN', offset: 4n });
  });

  test('another sha256: no file, and the right one afterwards', async () => {
    const id = await complete();
    expect((await refusalOf(finalize(id, { sha256: wrongHash }))).code).toBe('checksum_mismatch');
    expect(await stateOf(id)).toEqual({ state: 'OPEN', offset: 12n });
    expect(system.neighbours.files.size).toBe(0);
    expect((await finalize(id, { sha256: rightHash })).created).toBe(true);
  });

  test('another sha256 once the content is sealed: it stays where it is', async () => {
    const id = await complete();
    system.neighbours.fault = { step: 'commitFile', when: 'before' };
    await refusalOf(finalize(id));
    expect((await refusalOf(finalize(id, { sha256: wrongHash }))).code).toBe('checksum_mismatch');
    expect(await stateOf(id)).toEqual({ state: 'FINALIZING', offset: 12n });
    expect((await finalize(id)).created).toBe(true);
  });

  test('what was noted of a long seal is not asked for again', async () => {
    const id = await complete();
    await system.sql(
      `update upload.uploads set state = 'finalizing', sealed_key = 'k', sealed_sha256 = $2, sealed_chunk_crc32c = $3,
         sealed_head = 'hello' where id = $1`,
      [id, rightHash, Buffer.alloc(4)],
    );
    expect((await refusalOf(finalize(id, { sha256: wrongHash }))).code).toBe('checksum_mismatch');
    expect((await finalize(id)).created).toBe(true);
    expect(system.neighbours.count('sealBlob')).toBe(0);
  });

  test('a name that is taken: the upload stays, and another name will do', async () => {
    await finalize(await complete());
    const id = await complete();
    expect((await refusalOf(finalize(id))).code).toBe('name_conflict');
    expect((await finalize(id, { filename: 'b.txt' })).file?.name).toBe('b.txt');
    const third = await complete({ filename: 'a.txt', onConflict: OnConflict.RENAME });
    expect((await refusalOf(finalize(third, { onConflict: OnConflict.FAIL }))).code).toBe('name_conflict');
    expect((await finalize(third)).file?.name).toBe('a.txt (2)');
  });

  test('no name at all', async () => {
    const id = await complete({});
    expect(await refusalOf(finalize(id))).toMatchObject({
      code: 'validation_failed',
      members: { errors: [{ pointer: '/filename' }] },
    });
    expect((await finalize(id, { filename: 'named' })).file?.name).toBe('named');
  });

  test('a seal that takes its time: no file yet, and the same upload later', async () => {
    const id = await complete();
    system.neighbours.slowSeal = true;
    expect(await finalize(id)).toMatchObject({ created: false });
    expect((await finalize(id)).file).toBeUndefined();
    expect(await stateOf(id)).toEqual({ state: 'FINALIZING', offset: 12n });
    expect((await refusalOf(one.uploads.terminateUpload({ id }, as(user)))).code).toBe('state_conflict');
    system.neighbours.slowSeal = false;
    expect((await finalize(id)).created).toBe(true);
  });
});

describe('a crash', () => {
  const steps = ['statStaged', 'sealBlob', 'commitFile'] as const;
  test.each(
    steps.flatMap((step) => [
      { step, when: 'before' as const },
      { step, when: 'after' as const },
    ]),
  )('$when $step loses nothing: asked again, in another process, there is one file', async (fault) => {
    const id = await complete();
    system.neighbours.fault = fault;
    // The process that took the last byte need not ask how far the content is.
    expect((await refusalOf(finalize(id, {}, as(user), other))).code).toBe('unavailable');
    expect((await stateOf(id)).offset).toBe(12n);
    const { file } = await finalize(id);
    expect(file?.name).toBe('a.txt');
    expect(system.neighbours.files.size).toBe(1);
    expect(await stateOf(id)).toEqual({ state: 'FINALIZED', offset: 12n });
    expect((await finalize(id)).file?.id).toBe(file?.id);
  });

  test.each([
    [
      'after the seal, before it was noted',
      `set sealed_key = null, sealed_sha256 = null, sealed_chunk_crc32c = null, sealed_head = null, state = 'finalizing'`,
    ],
    [
      'after the seal of a request that another one put back',
      `set sealed_key = null, sealed_sha256 = null, sealed_chunk_crc32c = null, sealed_head = null, state = 'open'`,
    ],
    ['after the commit, before it was noted', `set state = 'finalizing'`],
  ])('%s', async (_when, change) => {
    const id = await complete();
    system.neighbours.fault = { step: 'commitFile', when: 'after' };
    await refusalOf(finalize(id));
    await system.sql(`update upload.uploads ${change} where id = $1`, [id]);
    const { file, created } = await finalize(id, {}, as(user), other);
    // No client was told of it before.
    expect(created).toBe(true);
    expect(file?.name).toBe('a.txt');
    expect(system.neighbours.files.size).toBe(1);
  });
});

describe('an idempotency key', () => {
  test('gets the first answer again, created as it was', async () => {
    const id = await complete();
    const first = await finalize(id, {}, keyed('k1'));
    expect(first.created).toBe(true);
    expect(await finalize(id, {}, keyed('k1'), other)).toEqual(first);
    expect((await finalize(id)).created).toBe(false);
  });

  test('for another body is refused', async () => {
    const id = await complete();
    await finalize(id, {}, keyed('k2'));
    expect((await refusalOf(finalize(id, {}, keyed('k2', 'g')))).code).toBe('idempotency_key_reused');
  });

  test('keeps no refusal', async () => {
    const id = await create();
    expect((await refusalOf(finalize(id, {}, keyed('k3')))).code).toBe('upload_incomplete');
    await one.append({ id, offset: 0n }, bodyOf(content), as(user));
    expect((await finalize(id, {}, keyed('k3'))).created).toBe(true);
  });

  test('many times at once all get the one answer, round after round', async () => {
    for (let round = 0; round < 25; round += 1) {
      system.neighbours.reset();
      const id = await complete();
      const answers = await Promise.all(
        Array.from({ length: 8 }, (_, index) => finalize(id, {}, keyed(`many-${round}`), index % 2 ? one : other)),
      );
      expect(new Set(answers.map(({ file }) => file?.id)).size).toBe(1);
      expect(answers.map(({ created }) => created)).toEqual(answers.map(() => true));
    }
  });
});
