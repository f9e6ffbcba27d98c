import type { FastifyReply, FastifyRequest } from 'fastify';

/** The versions that If-Match accepts; undefined where the header is absent or `*`. A tag that is none of ours accepts nothing. */
export function ifMatchOf(request: FastifyRequest): { versions: bigint[] } | undefined {
  const header = request.headers['if-match'];
  if (header === undefined || header.trim() === '*') return undefined;
  const versions = header
    .split(',')
    .map((tag) => /^\s*"(0|[1-9]\d{0,17})"\s*$/.exec(tag)?.[1])
    .filter((version) => version !== undefined)
    .map(BigInt);
  return { versions };
}

/** The strong tag of a version (RFC 9110 §8.8.3). */
export function setEtag(reply: FastifyReply, version: number): void {
  void reply.header('etag', `"${version}"`);
}
