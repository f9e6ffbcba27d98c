import type { Generated, Selectable } from 'kysely';

/** The tables that upload owns. */
export interface Tables {
  'upload.uploads': {
    id: string;
    user_id: string;
    state: Generated<'open' | 'finalizing' | 'finalized' | 'ended'>;
    /** In bytes, as text; null while deferred. */
    length: string | null;
    metadata: string | null;
    filename: string | null;
    directory_id: string | null;
    media_type: string | null;
    file_class: string | null;
    sha256: Buffer | null;
    on_conflict: Generated<'fail' | 'rename'>;
    /** Ids of what finalize will make, so that each of its steps finds what an earlier try did. */
    file_id: string;
    blob_id: string;
    backend_id: string;
    sealed_key: string | null;
    sealed_sha256: Buffer | null;
    sealed_chunk_crc32c: Buffer | null;
    sealed_head: Buffer | null;
    created_at: Generated<Date>;
    expires_at: Date;
  };
}

export type UploadRow = Selectable<Tables['upload.uploads']>;
