import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { timestampDate } from '@bufbuild/protobuf/wkt';
import { newId } from '@stowage/common/ids';
import { UploadState } from '@stowage/proto/stowage/upload/v1/upload';
import { PassThrough } from 'node:stream';
import { as, bodyOf, refusalOf, startTestUploads, until, uploadOf } from './test-upload.ts';
import type { TestProcess, TestUploads } from './test-upload.ts';

let system: TestUploads;
let service: TestProcess;
beforeAll(async () => {
  system = await startTestUploads();
  service = await system.start({
    STOWAGE_UPLOADS_PER_USER: '5',
    STOWAGE_APPENDS_PER_USER: '2',
    STOWAGE_MAX_UPLOAD_BYTES: '1000',
  });
});
afterAll(() => system.close());
beforeEach(() => system.neighbours.reset());

async function create(user: string, length: bigint | null = 10n): Promise<string> {
  const answer = await service.uploads.createUpload(
    { ...(length === null ? {} : { length }), target: { filename: 'a.txt' } },
    as(user),
  );
  return uploadOf(answer).id;
}

async function offsetOf(id: string, user: string): Promise<bigint> {
  return uploadOf(await service.uploads.getUpload({ id }, as(user))).offset;
}

async function expire(id: string): Promise<void> {
  await system.sql(`update upload.uploads set expires_at = now() - interval '1 second' where id = $1`, [id]);
}

describe('creating an upload', () => {
  test('gives all that was said, and opens its content', async () => {
    const target = {
      filename: 'e\u0301.png',
      mediaType: 'image/PNG; x=1',
      fileClass: 'photo',
      sha256: Buffer.alloc(32, 7),
    };
    const made = uploadOf(
      await service.uploads.createUpload({ length: 10n, metadata: 'filename YQ==', target }, as(newId())),
    );
    expect(made).toMatchObject({ state: UploadState.OPEN, offset: 0n, length: 10n, metadata: 'filename YQ==' });
    expect(made.fileId).toBeUndefined();
    expect(made.target).toMatchObject({ filename: 'é.png', mediaType: 'image/PNG; x=1', fileClass: 'photo' });
    expect(Buffer.from(made.target?.sha256 ?? [])).toEqual(Buffer.alloc(32, 7));
    expect(system.neighbours.staged.has(made.id)).toBe(true);
    expect(made.expiresAt && timestampDate(made.expiresAt).getTime()).toBeGreaterThan(Date.now() + 86_000_000);
  });

  test('on a backend that is deleted once it was chosen chooses again, and is asked to try again at the worst', async () => {
    system.neighbours.chosen.push(newId());
    const { length } = uploadOf(await service.uploads.createUpload({ length: 10n }, as(newId())));
    expect(length).toBe(10n);
    system.neighbours.chosen.push(...Array.from({ length: 9 }, newId));
    expect(await refusalOf(service.uploads.createUpload({ length: 10n }, as(newId())))).toMatchObject({
      code: 'unavailable',
    });
  });

  test.each([
    ['a name that no file may have', { target: { filename: 'a/b' } }, 'validation_failed'],
    ['a class that is none', { target: { fileClass: 'A' } }, 'validation_failed'],
    ['a directory that is no id', { target: { directoryId: 'root' } }, 'validation_failed'],
    ['a hash of another length', { target: { sha256: Buffer.alloc(20) } }, 'validation_failed'],
    ['a negative length', { length: -1n }, 'validation_failed'],
    ['more than an upload may have', { length: 1001n }, 'payload_too_large'],
  ])('refuses %s, and leaves nothing', async (_what, request, code) => {
    const user = newId();
    expect((await refusalOf(service.uploads.createUpload(request, as(user)))).code).toBe(code);
    expect(await system.sql('select from upload.uploads where user_id = $1', [user])).toHaveLength(0);
    expect(system.neighbours.staged.size).toBe(0);
  });

  test('passes on that the directory is not there', async () => {
    system.neighbours.fault = { step: 'checkDestination', when: 'before' };
    expect((await refusalOf(service.uploads.createUpload({ length: 1n }, as(newId())))).code).toBe('unavailable');
    expect(system.neighbours.count('createStaged')).toBe(0);
  });

  test('many at once do not pass the limit of a user together', async () => {
    // The first round opens the connections: only then do they truly come at once.
    for (let round = 0; round < 6; round += 1) {
      const user = newId();
      const outcomes = await Promise.allSettled(Array.from({ length: 20 }, () => create(user)));
      expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(5);
      expect(await refusalOf(create(user))).toMatchObject({ code: 'rate_limited', members: { retry_after: 60 } });
    }
    expect(await create(newId())).toBeTruthy();
  });

  test.each(['before', 'after'] as const)(
    'that fails %s its content was made leaves nothing for good',
    async (when) => {
      const user = newId();
      system.neighbours.fault = { step: 'createStaged', when };
      expect((await refusalOf(create(user))).code).toBe('unavailable');
      const rows = await system.sql<{ state: string; backend_id: string }>(
        'select state, backend_id from upload.uploads where user_id = $1',
        [user],
      );
      expect(rows).toEqual([{ state: 'ended', backend_id: system.neighbours.backendId }]);
    },
  );
});

describe('whose upload it is', () => {
  test('another user gets the same answer as for an unknown one; an admin sees it', async () => {
    const id = await create(newId());
    const stranger = as(newId());
    const unknown = await refusalOf(service.uploads.getUpload({ id: newId() }, stranger));
    const calls = [
      service.uploads.getUpload({ id }, stranger),
      service.uploads.terminateUpload({ id }, stranger),
      service.uploads.finalizeUpload({ id }, stranger),
      service.append({ id, offset: 0n }, bodyOf('x'), stranger),
    ];
    for (const call of calls) {
      expect(await refusalOf(call)).toMatchObject({ code: unknown.code, detail: unknown.detail });
    }
    expect((await refusalOf(service.uploads.getUpload({ id: '../etc' }, stranger))).code).toBe('not_found');
    expect(uploadOf(await service.uploads.getUpload({ id }, as(newId(), { role: 'admin' }))).id).toBe(id);
  });

  test('without a user nothing is answered', async () => {
    const id = await create(newId());
    expect((await refusalOf(service.uploads.getUpload({ id }, as(newId(), { actor: null })))).code).toBe(
      'unauthenticated',
    );
  });
});

describe('a backend that fails a new upload', () => {
  const target = { filename: 'a.txt' };

  beforeEach(() => {
    system.neighbours.hasSecond = true;
    system.neighbours.down.add(system.neighbours.backendId);
  });

  async function backendOf(id: string): Promise<unknown> {
    const rows = await system.sql<{ backend_id: string }>('select backend_id from upload.uploads where id = $1', [id]);
    return rows[0]?.backend_id;
  }

  test('is passed over for the next one, and nothing is left of the first try', async () => {
    const user = newId();
    const id = await create(user);
    expect(await backendOf(id)).toBe(system.neighbours.secondId);
    const open = await system.sql(`select from upload.uploads where user_id = $1 and state = 'open'`, [user]);
    expect(open).toHaveLength(1);
  });

  test('is passed over with the bytes that came along', async () => {
    const request = { upload: { length: 10n, target }, bodyLength: 4n };
    const made = uploadOf(await service.createWithBody(request, bodyOf('ab', 'cd'), as(newId())));
    expect(made.offset).toBe(4n);
    expect(await backendOf(made.id)).toBe(system.neighbours.secondId);
    expect(system.neighbours.staged.get(made.id)?.bytes.toString()).toBe('abcd');
  });

  test('fails it where no other is left', async () => {
    system.neighbours.down.add(system.neighbours.secondId);
    const user = newId();
    expect((await refusalOf(create(user))).code).toBe('unavailable');
    const open = await system.sql(`select from upload.uploads where user_id = $1 and state = 'open'`, [user]);
    expect(open).toHaveLength(0);
  });

  test('is left at once, also where it hangs', async () => {
    system.neighbours.down.clear();
    const hanging = Promise.withResolvers<void>();
    system.neighbours.gates.set('createStaged', hanging.promise);
    const made = create(newId());
    await until(() => system.neighbours.count('createStaged') === 2);
    hanging.resolve();
    expect(await backendOf(await made)).toBe(system.neighbours.secondId);
  });
});

describe('appending', () => {
  test('moves the offset to the end, and says when it is complete', async () => {
    const user = newId();
    const id = await create(user);
    expect(await service.append({ id, offset: 0n, bodyLength: 4n }, bodyOf('ab', 'cd'), as(user))).toMatchObject({
      offset: 4n,
      complete: false,
    });
    expect(await offsetOf(id, user)).toBe(4n);
    expect(await service.append({ id, offset: 4n }, bodyOf('efghij'), as(user))).toMatchObject({
      offset: 10n,
      complete: true,
    });
    expect(await service.append({ id, offset: 10n, bodyLength: 0n }, bodyOf(), as(user))).toMatchObject({
      offset: 10n,
      complete: true,
    });
    expect(await system.sql('select from upload.leases where upload_id = $1', [id])).toHaveLength(0);
  });

  test('another offset is refused with the right one', async () => {
    const user = newId();
    const id = await create(user);
    expect(await refusalOf(service.append({ id, offset: 3n }, bodyOf('x'), as(user)))).toMatchObject({
      code: 'offset_conflict',
      members: { offset: 0 },
    });
    expect(await offsetOf(id, user)).toBe(0n);
  });

  test('a body that would pass the end is refused unread', async () => {
    const user = newId();
    const id = await create(user);
    const body = bodyOf('x'.repeat(11));
    expect((await refusalOf(service.append({ id, offset: 0n, bodyLength: 11n }, body, as(user)))).code).toBe(
      'payload_too_large',
    );
    expect(body.readableDidRead).toBe(false);
    expect(body.destroyed).toBe(false);
  });

  test('a body that breaks off keeps what arrived, gives the lease back and renews the life of the upload', async () => {
    const user = newId();
    const id = await create(user);
    await system.sql(`update upload.uploads set expires_at = now() + interval '1 minute' where id = $1`, [id]);
    const body = new PassThrough();
    const gone = new AbortController();
    const appending = refusalOf(service.append({ id, offset: 0n }, body, as(user, { signal: gone.signal })));
    body.write('abc');
    await until(async () => (await offsetOf(id, user)) === 3n);
    gone.abort();
    expect((await appending).code).toBe('unavailable');
    expect(await offsetOf(id, user)).toBe(3n);
    expect(await system.sql('select from upload.leases where upload_id = $1', [id])).toHaveLength(0);
    const [row] = await system.sql<{ hours: number }>(
      'select extract(epoch from expires_at - now())::float / 3600 as hours from upload.uploads where id = $1',
      [id],
    );
    expect(row?.hours).toBeGreaterThan(23);
  });

  test('a user sends so many bodies at a time and no more; others are not held up', async () => {
    const user = newId();
    const bodies = [new PassThrough(), new PassThrough()];
    const running = await Promise.all(
      bodies.map(async (body) => {
        const id = await create(user);
        return { id, done: service.append({ id, offset: 0n }, body, as(user)) };
      }),
    );
    await until(async () => {
      const held = await system.sql('select from upload.leases where upload_id = any($1)', [
        running.map(({ id }) => id),
      ]);
      return held.length === 2;
    });
    const third = await create(user);
    const refusal = await refusalOf(service.append({ id: third, offset: 0n }, bodyOf('x'), as(user)));
    expect(refusal).toMatchObject({ code: 'rate_limited', members: { retry_after: 1 } });
    const other = newId();
    expect((await service.append({ id: await create(other), offset: 0n }, bodyOf('x'), as(other))).offset).toBe(1n);
    for (const body of bodies) body.end('y');
    await Promise.all(running.map(({ done }) => done));
    expect((await service.append({ id: third, offset: 0n }, bodyOf('x'), as(user))).offset).toBe(1n);
  });

  test('content that is lost is gone, and said so', async () => {
    const user = newId();
    const id = await create(user);
    system.neighbours.staged.delete(id);
    expect((await refusalOf(service.append({ id, offset: 0n }, bodyOf('x'), as(user)))).code).toBe('gone');
    expect((await refusalOf(service.uploads.getUpload({ id }, as(user)))).code).toBe('gone');
    expect((await refusalOf(service.uploads.finalizeUpload({ id }, as(user)))).code).toBe('gone');
  });
});

describe('a deferred length', () => {
  test('is declared once; the same again is fine and another one refused', async () => {
    const user = newId();
    const id = await create(user, null);
    expect(await service.append({ id, offset: 0n }, bodyOf('abc'), as(user))).toMatchObject({
      offset: 3n,
      complete: false,
    });
    expect(uploadOf(await service.uploads.getUpload({ id }, as(user))).length).toBeUndefined();
    expect(await refusalOf(service.uploads.finalizeUpload({ id }, as(user)))).toMatchObject({
      code: 'upload_incomplete',
      members: { offset: 3, length: null },
    });
    expect(await service.append({ id, offset: 3n, length: 5n }, bodyOf('d'), as(user))).toMatchObject({
      offset: 4n,
      complete: false,
    });
    expect((await refusalOf(service.append({ id, offset: 4n, length: 6n }, bodyOf('e'), as(user)))).code).toBe(
      'validation_failed',
    );
    expect(await service.append({ id, offset: 4n, length: 5n }, bodyOf('e'), as(user))).toMatchObject({
      offset: 5n,
      complete: true,
    });
  });

  test('may not lie before what is there or beyond the limit, and a refused request declares nothing', async () => {
    const user = newId();
    const id = await create(user, null);
    await service.append({ id, offset: 0n }, bodyOf('abcd'), as(user));
    expect((await refusalOf(service.append({ id, offset: 0n, length: 2n }, bodyOf(''), as(user)))).code).toBe(
      'offset_conflict',
    );
    expect((await refusalOf(service.append({ id, offset: 4n, length: 2n }, bodyOf(''), as(user)))).code).toBe(
      'validation_failed',
    );
    expect((await refusalOf(service.append({ id, offset: 4n, length: 1001n }, bodyOf('x'), as(user)))).code).toBe(
      'payload_too_large',
    );
    expect(uploadOf(await service.uploads.getUpload({ id }, as(user))).length).toBeUndefined();
  });

  test('without one the content may not pass the limit', async () => {
    const user = newId();
    const id = await create(user, null);
    expect((await refusalOf(service.append({ id, offset: 0n, bodyLength: 1001n }, bodyOf('x'), as(user)))).code).toBe(
      'payload_too_large',
    );
    expect((await refusalOf(service.append({ id, offset: 0n }, bodyOf('x'.repeat(1001)), as(user)))).code).toBe(
      'payload_too_large',
    );
  });
});

describe('ending an upload', () => {
  test('frees its content at once and answers gone from then on', async () => {
    const user = newId();
    const id = await create(user);
    await service.uploads.terminateUpload({ id }, as(user));
    expect(system.neighbours.staged.has(id)).toBe(false);
    expect((await refusalOf(service.uploads.getUpload({ id }, as(user)))).code).toBe('gone');
    expect((await refusalOf(service.uploads.terminateUpload({ id }, as(user)))).code).toBe('gone');
    expect((await refusalOf(service.append({ id, offset: 0n }, bodyOf('x'), as(user)))).code).toBe('gone');
    const rows = await system.sql('select backend_id from upload.uploads where id = $1 and discarded_at is not null', [
      id,
    ]);
    expect(rows).toEqual([{ backend_id: null }]);
  });

  test('stops a running append', async () => {
    const user = newId();
    const id = await create(user);
    const body = new PassThrough();
    const appending = refusalOf(service.append({ id, offset: 0n }, body, as(user)));
    body.write('abc');
    await until(async () => (await offsetOf(id, user)) === 3n);
    await service.uploads.terminateUpload({ id }, as(user));
    expect((await appending).code).toBe('gone');
  });

  test('holds also while the store can not be asked: it is freed later', async () => {
    const user = newId();
    const id = await create(user);
    system.neighbours.fault = { step: 'discardStaged', when: 'before' };
    await service.uploads.terminateUpload({ id }, as(user));
    expect((await refusalOf(service.uploads.getUpload({ id }, as(user)))).code).toBe('gone');
    expect(await system.sql('select from upload.uploads where id = $1 and discarded_at is null', [id])).toHaveLength(1);
  });
});

describe('an upload past its time', () => {
  test('is gone before any job has seen it', async () => {
    const user = newId();
    const id = await create(user);
    await expire(id);
    expect((await refusalOf(service.uploads.getUpload({ id }, as(user)))).code).toBe('gone');
    expect((await refusalOf(service.append({ id, offset: 0n }, bodyOf('x'), as(user)))).code).toBe('gone');
    expect((await refusalOf(service.uploads.finalizeUpload({ id }, as(user)))).code).toBe('gone');
  });

  test('lives on while somebody writes to it', async () => {
    const user = newId();
    const id = await create(user);
    const body = new PassThrough();
    const appending = service.append({ id, offset: 0n }, body, as(user));
    body.write('abc');
    await until(async () => (await offsetOf(id, user)) === 3n);
    await expire(id);
    expect(await offsetOf(id, user)).toBe(3n);
    body.end('d');
    expect((await appending).offset).toBe(4n);
    expect(await offsetOf(id, user)).toBe(4n);
  });
});
