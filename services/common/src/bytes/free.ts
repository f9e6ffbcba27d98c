/** Less than this is not worth the call. */
const leastBytes = 4_096;

/**
 * Gives the memory of bytes back at once. V8 counts it and collects the whole heap for every 64 MiB of it: a third of the
 * CPU of a transfer. Only for whoever was given the bytes and is done with them; they are empty afterwards. Bytes that do
 * not fill their piece of memory are left alone, as the rest of it may be somebody else's.
 */
export function free(bytes: Buffer): void {
  const { buffer } = bytes;
  if (bytes.length !== buffer.byteLength || bytes.length < leastBytes) return;
  if (buffer instanceof ArrayBuffer) buffer.transfer(0);
}
