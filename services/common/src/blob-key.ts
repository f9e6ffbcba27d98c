/**
 * The fixed key of a blob on every backend. The folder is taken from the end of the id: a UUIDv7 begins with the time,
 * which would put all blobs of an era into one folder.
 */
export function blobKey(blobId: string): string {
  return `blobs/${blobId.slice(-2)}/${blobId}`;
}
