import type { IncomingHttpHeaders } from 'node:http';

/** What the preconditions of a GET or HEAD for content make of it (RFC 9110 §13.2.2). */
export type Verdict = 'send' | 'not_modified' | 'failed';

/** `etag` is strong and quoted; `modified` has whole seconds. */
export function judge(headers: IncomingHttpHeaders, etag: string, modified: Date): Verdict {
  const seconds = Math.floor(modified.getTime() / 1000);
  if (headers['if-match'] !== undefined) {
    if (!tagsOf(headers['if-match']).some((tag) => tag === '*' || tag === etag)) return 'failed';
  } else if (after(seconds, headers['if-unmodified-since'])) return 'failed';
  if (headers['if-none-match'] !== undefined) {
    return tagsOf(headers['if-none-match']).some((tag) => tag === '*' || weak(tag) === etag) ? 'not_modified' : 'send';
  }
  const since = dateOf(headers['if-modified-since']);
  return since !== null && seconds <= since ? 'not_modified' : 'send';
}

/** Whether a Range still speaks of this content (RFC 9110 §13.1.5). */
export function rangeStands(ifRange: string | string[] | undefined, etag: string, modified: Date): boolean {
  if (ifRange === undefined) return true;
  if (typeof ifRange !== 'string') return false;
  if (ifRange.trim().startsWith('"')) return ifRange.trim() === etag;
  return dateOf(ifRange) === Math.floor(modified.getTime() / 1000);
}

function tagsOf(header: string): string[] {
  return header.split(',').map((tag) => tag.trim());
}

function weak(tag: string): string {
  return tag.startsWith('W/') ? tag.slice(2) : tag;
}

function after(seconds: number, header: string | undefined): boolean {
  const limit = dateOf(header);
  return limit !== null && seconds > limit;
}

function dateOf(header: string | undefined): number | null {
  const time = Date.parse(header ?? '');
  return Number.isNaN(time) ? null : Math.floor(time / 1000);
}
