import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { appendStaged, uploadEndpoint } from '@stowage/common/bytes/operations';
import { blobKey } from '@stowage/common/blob-key';
import { AppError, unavailable } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import type { CallContext } from '@stowage/common/rpc/context';
import type { LocalConnections } from '@stowage/common/rpc/connections';
import { endpoint } from '@stowage/common/rpc/contract';
import type { Implementation } from '@stowage/common/rpc/contract';
import { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { AppendStagedRequest, SealBlobRequest } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import type { AbandonBlobRequest, CommitFileRequest } from '@stowage/proto/stowage/catalog/v1/content';
import { NodeKind, OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import { TreeService } from '@stowage/proto/stowage/catalog/v1/tree';
import { PolicyService } from '@stowage/proto/stowage/placement/v1/policy';

/** One staged content with its writer. */
interface Staged {
  bytes: Buffer;
  writer: { fence: bigint; abort: AbortController } | null;
}

/** What the fake catalog made. */
interface FakeFile {
  request: CommitFileRequest;
  name: string;
}

type Step =
  | 'checkDestination'
  | 'createStaged'
  | 'statStaged'
  | 'discardStaged'
  | 'sealBlob'
  | 'commitFile'
  | 'abandonBlob'
  | 'getNode';

/** Catalog, backend-registry and placement as the protos describe them, in memory, with faults on demand. */
export class FakeNeighbours {
  readonly backendId = newId();
  /** What is chosen for the next uploads; the one backend after that. */
  readonly chosen: string[] = [];
  /** Stands in for the other where `hasSecond`. */
  readonly secondId = newId();
  hasSecond = false;
  /** Backends that take nothing. */
  readonly down = new Set<string>();
  readonly staged = new Map<string, Staged>();
  readonly sealed = new Map<string, Buffer>();
  readonly files = new Map<string, FakeFile>();
  readonly abandoned = new Set<string>();
  readonly calls: Step[] = [];
  /** Fails the next call of a step, before or after its work: a process that died, or an answer that was lost. */
  fault: { step: Step; when: 'before' | 'after' } | null = null;
  /** While true, SealBlob answers "not yet". */
  slowSeal = false;
  /** The store ignores a stop for as long as this is pending. */
  stuck: Promise<void> | null = null;
  /** What a step waits for before it begins. */
  readonly gates = new Map<Step, Promise<void>>();

  join(connections: LocalConnections): void {
    connections.add(
      'backend-registry',
      [endpoint(BlobService, this.#blobService())],
      [uploadEndpoint(appendStaged, (request, body, context) => this.#append(request, body, context))],
    );
    connections.add(
      'catalog',
      [endpoint(ContentService, this.#contentService()), endpoint(TreeService, this.#treeService())],
      [],
    );
    const policy = { fileClass: 'default', backendIds: [this.backendId], replicas: 1, syncReplicas: 1, version: 1n };
    const policies = endpoint(PolicyService, {
      getPolicy: async () => ({ policy }),
      listPolicies: unused,
      putPolicy: unused,
      deletePolicy: unused,
      previewPlacement: unused,
    });
    connections.add('placement', [policies], []);
  }

  reset(): void {
    for (const part of [this.staged, this.sealed, this.files, this.abandoned, this.gates, this.down]) part.clear();
    this.hasSecond = false;
    this.calls.length = 0;
    this.chosen.length = 0;
    this.fault = null;
    this.slowSeal = false;
    this.stuck = null;
  }

  /** How often a step was asked for. */
  count(step: Step): number {
    return this.calls.filter((call) => call === step).length;
  }

  async #step<R>(step: Step, work: () => R): Promise<R> {
    this.calls.push(step);
    await this.gates.get(step);
    const fault = this.fault?.step === step ? this.fault : null;
    if (fault) this.fault = null;
    if (fault?.when === 'before') throw unavailable('A fault before the step.');
    const result = work();
    if (fault?.when === 'after') throw unavailable('A fault after the step.');
    return result;
  }

  #blobService(): Implementation<typeof BlobService> {
    return {
      chooseBackend: async ({ except }) => {
        const planned = this.chosen.shift();
        if (planned !== undefined) return { backendId: planned, hasAlternative: false };
        const [backendId, ...others] = [this.backendId, ...(this.hasSecond ? [this.secondId] : [])].filter(
          (id) => !except.includes(id),
        );
        if (backendId === undefined) throw unavailable('none is left');
        return { backendId, hasAlternative: others.length > 0 };
      },
      createStaged: ({ backendId, stagedId }) =>
        this.#step('createStaged', () => {
          this.#requireUp(backendId);
          if (!this.staged.has(stagedId)) this.staged.set(stagedId, { bytes: Buffer.alloc(0), writer: null });
          return {};
        }),
      statStaged: ({ stagedId }) =>
        this.#step('statStaged', () => ({ offset: BigInt(this.#find(stagedId).bytes.length) })),
      discardStaged: ({ stagedId }) =>
        this.#step('discardStaged', () => {
          this.staged.get(stagedId)?.writer?.abort.abort();
          this.staged.delete(stagedId);
          return {};
        }),
      sealBlob: (request) => this.#step('sealBlob', () => this.#seal(request)),
      deleteBlob: unused,
      verifyBlob: unused,
      copyBlob: unused,
    };
  }

  #requireUp(backendId: string): void {
    if (this.down.has(backendId)) throw unavailable('It is down.');
  }

  #seal(request: SealBlobRequest) {
    if (this.slowSeal) return {};
    const key = blobKey(request.blobId);
    const content = this.sealed.get(key) ?? this.#find(request.stagedId).bytes;
    if (BigInt(content.length) !== request.size) {
      throw new AppError('upload_incomplete', 'short', {
        members: { offset: content.length, length: Number(request.size) },
      });
    }
    const sha256 = createHash('sha256').update(content).digest();
    if (request.sha256 && !sha256.equals(request.sha256)) {
      throw new AppError('checksum_mismatch', 'other', { members: { sealed: this.sealed.has(key) } });
    }
    this.sealed.set(key, content);
    this.staged.delete(request.stagedId);
    const chunkCrc32c = Buffer.alloc(Math.ceil(content.length / 2 ** 20) * 4, 1);
    return { blob: { key, sha256, chunkCrc32c, head: content.subarray(0, 4_100) } };
  }

  #find(stagedId: string): Staged {
    const staged = this.staged.get(stagedId);
    if (!staged) throw new AppError('not_found', 'There is no such staged content.');
    return staged;
  }

  /** As a store does: the fence decides who writes, and what arrived before a break is kept. */
  async #append(request: AppendStagedRequest, body: Readable, context: CallContext): Promise<{ offset: bigint }> {
    this.#requireUp(request.backendId);
    if (request.create) this.staged.set(request.stagedId, { bytes: Buffer.alloc(0), writer: null });
    const staged = this.#find(request.stagedId);
    if (staged.writer && staged.writer.fence >= request.fence) throw new AppError('locked', 'a newer fence writes');
    staged.writer?.abort.abort();
    const writer = { fence: request.fence, abort: new AbortController() };
    staged.writer = writer;
    try {
      if (request.offset !== BigInt(staged.bytes.length)) {
        throw new AppError('offset_conflict', 'other', { members: { offset: staged.bytes.length } });
      }
      await this.#write(staged, request, body, AbortSignal.any([context.signal, writer.abort.signal]));
      return { offset: BigInt(staged.bytes.length) };
    } finally {
      if (staged.writer === writer) staged.writer = null;
    }
  }

  async #write(staged: Staged, request: AppendStagedRequest, body: Readable, signal: AbortSignal): Promise<void> {
    const pieces = body.iterator({ destroyOnReturn: false });
    for (;;) {
      const next = await Promise.race([pieces.next(), whenAborted(signal)]);
      if (signal.aborted) await this.stuck;
      if (signal.aborted || next === null) throw unavailable('The body broke off.');
      if (next.done) return;
      const piece: Buffer = next.value;
      if (staged.bytes.length + piece.length > Number(request.limit))
        throw new AppError('payload_too_large', 'over the limit');
      staged.bytes = Buffer.concat([staged.bytes, piece]);
    }
  }

  #contentService(): Implementation<typeof ContentService> {
    return {
      getContent: unused,
      getChunkChecksums: unused,
      reportReplica: unused,
      settleReplica: unused,
      claimBlobRemoval: unused,
      forgetReplica: unused,
      forgetBackendReplicas: unused,
      getBackendUsage: unused,
      checkDestination: () => this.#step('checkDestination', () => ({})),
      commitFile: (request) => this.#step('commitFile', () => this.#commit(request)),
      abandonBlob: (request) => this.#step('abandonBlob', () => this.#abandon(request)),
    };
  }

  #commit(request: CommitFileRequest) {
    const before = this.files.get(request.fileId);
    if (before) return { file: nodeOf(before), created: false };
    if (this.abandoned.has(request.blob?.id ?? '')) throw new AppError('gone', 'abandoned');
    const names = new Set([...this.files.values()].map(({ name }) => name));
    if (names.has(request.name) && request.onConflict !== OnConflict.RENAME)
      throw new AppError('name_conflict', 'taken');
    const file = { request, name: names.has(request.name) ? `${request.name} (2)` : request.name };
    this.files.set(request.fileId, file);
    return { file: nodeOf(file), created: true };
  }

  #abandon({ fileId, blobId }: AbandonBlobRequest) {
    const file = this.files.get(fileId);
    if (file) return { file: nodeOf(file) };
    this.abandoned.add(blobId);
    return {};
  }

  #treeService(): Implementation<typeof TreeService> {
    return {
      getNode: ({ id }) =>
        this.#step('getNode', () => {
          const file = this.files.get(id);
          if (!file) throw new AppError('not_found', 'There is no such file.');
          return { node: nodeOf(file) };
        }),
      listChildren: unused,
      createDirectory: unused,
      renameNode: unused,
      moveNode: unused,
      recycleNode: unused,
      restoreNode: unused,
      purgeNode: unused,
      listRecycleBin: unused,
      emptyRecycleBin: unused,
    };
  }
}

function nodeOf({ request, name }: FakeFile) {
  const { mediaType, fileClass, blob } = request;
  const facts = { size: blob?.size ?? 0n, mediaType, fileClass, sha256: blob?.sha256 ?? new Uint8Array() };
  return { id: request.fileId, kind: NodeKind.FILE, parentId: request.directoryId, name, version: 1n, file: facts };
}

function whenAborted(signal: AbortSignal): Promise<null> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(null);
    signal.addEventListener('abort', () => resolve(null), { once: true });
  });
}

async function unused(): Promise<never> {
  throw new Error('upload is not expected to call this');
}
