import { unavailable } from '@stowage/common/errors';
import { oddAnswer } from './webdav-errors.ts';
import { expectStatus, readAnswer, statusOf } from './webdav-http.ts';
import type { Call, WebdavHttp } from './webdav-http.ts';
import { MultistatusParser } from './webdav-multistatus.ts';
import type { DavEntry } from './webdav-multistatus.ts';
import type { WebdavPaths } from './webdav-paths.ts';

const oneEntryBytes = 64 * 1024;

const question =
  '<?xml version="1.0" encoding="utf-8"?>' +
  '<propfind xmlns="DAV:"><prop><resourcetype/><getcontentlength/><getlastmodified/></prop></propfind>';

/** What lies at `path`; null when nothing does. */
export async function look(
  http: WebdavHttp,
  paths: WebdavPaths,
  path: string,
  signal?: AbortSignal,
): Promise<DavEntry | null> {
  let found: DavEntry | null = null;
  const call = propfind(path, '0', signal);
  const there = await http.call(call, async (response, exchange) => {
    if (isMissing(call, statusOf(response))) return false;
    const parser = new MultistatusParser((entry) => {
      if (paths.nameOf(path, entry.href) === '') found = entry;
    });
    await readAnswer(response, exchange, oneEntryBytes, (piece) => parser.write(piece));
    parser.end();
    return true;
  });
  return there ? readable(found) : null;
}

/**
 * Hands over what lies right in the folder at `path`, as it arrives and in the server's order; false when there is no
 * such folder. Throws when the answer breaks off, or tells of something it can't show: such a listing says nothing.
 */
export async function lookInto(
  http: WebdavHttp,
  paths: WebdavPaths,
  path: string,
  onEntry: (name: string, entry: DavEntry) => void,
): Promise<boolean> {
  const late = new AbortController();
  const tooLate = (): void => late.abort(unavailable('The backend did not list a folder in time.'));
  const timer = setTimeout(tooLate, http.limits.listMs);
  const call = propfind(path, '1', late.signal);
  let self: DavEntry | null = null;
  const listing = http.call(call, async (response, exchange) => {
    if (isMissing(call, statusOf(response))) return false;
    exchange.within(http.limits.idleMs);
    const parser = new MultistatusParser((entry) => {
      const name = paths.nameOf(path, entry.href);
      if (name === '') self = entry;
      else if (entry.status !== 404) onEntry(name, entry);
    });
    await readAnswer(response, exchange, http.limits.listBytes, (piece) => {
      exchange.touch();
      parser.write(piece);
    });
    parser.end();
    if (!readable(self).folder) throw oddAnswer('a listing is of something that is no folder');
    return true;
  });
  return listing.finally(() => clearTimeout(timer));
}

function propfind(path: string, depth: '0' | '1', signal?: AbortSignal): Call {
  return {
    method: 'PROPFIND',
    path,
    headers: { depth, 'content-type': 'application/xml; charset=utf-8' },
    body: question,
    ...(signal && { signal }),
  };
}

function isMissing(call: Call, status: number): boolean {
  expectStatus(call, status, 207, 404, 410);
  return status !== 207;
}

function readable(entry: DavEntry | null): DavEntry {
  if (!entry) throw oddAnswer('an answer does not tell of what was asked for');
  if (entry.status !== null && entry.status !== 200) throw oddAnswer(`an answer gives ${entry.status} for an entry`);
  return entry;
}
