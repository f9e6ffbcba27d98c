/** The unit of a blob's checksums, in bytes: each chunk has a CRC-32C of four bytes, also a shorter last one. */
export const chunkBytes = 1024 * 1024;
