/** How long a WebDAV server may take, in milliseconds, and how much it may say, in bytes. */
export interface WebdavLimits {
  connectMs: number;
  /** From a request to the head of its answer, and for the whole of a small answer. */
  answerMs: number;
  /** As answerMs, for what a server does after the last byte of a body and for a move: it may copy. */
  settleMs: number;
  /** Without a byte in a stream that is waited for. */
  idleMs: number;
  /** For the whole listing of one folder. */
  listMs: number;
  /** Of the listing of one folder: it is read as a stream. At some 500 bytes each it is half a million blobs a folder. */
  listBytes: number;
  /** For taking back what a failed write left. */
  cleanUpMs: number;
}

export const defaultLimits: WebdavLimits = {
  connectMs: 5_000,
  answerMs: 30_000,
  settleMs: 120_000,
  idleMs: 30_000,
  listMs: 600_000,
  listBytes: 256 * 1024 * 1024,
  cleanUpMs: 5_000,
};
