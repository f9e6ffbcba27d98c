import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { newId } from '@stowage/common/ids';
import type { ListedBlob } from './blob-store.ts';
import { blobKey } from './keys.ts';
import { DavServer, entryXml, multistatus } from './test-dav-server.ts';
import { refuses } from './test-store.ts';
import { testAgents } from './test-webdav.ts';
import { MultistatusParser } from './webdav-multistatus.ts';
import type { DavEntry } from './webdav-multistatus.ts';
import { temporaryName } from './webdav-temporaries.ts';
import { usualWebdavLimits } from './webdav-limits.ts';
import { WebdavStore } from './webdav-store.ts';

const limits = { ...usualWebdavLimits, callMs: 1_000, idleMs: 1_000, listMs: 2_000, listBytes: 4 * 1024 * 1024 };
const one = { length: 1 };

describe('what a WebDAV server says of its folders', () => {
  let server: DavServer;
  let other: DavServer;
  let store: WebdavStore;

  beforeEach(async () => {
    [server, other] = [await DavServer.start(), await DavServer.start()];
    store = await WebdavStore.open(server.config, testAgents(), limits);
    server.things.set('/dav/root', null);
    await store.prepare();
    server.things.set('/dav/root/blobs/aa', null);
  });

  afterEach(() => {
    expect(other.requests).toEqual([]);
    server.stop();
    other.stop();
  });

  /** Answers each look into `folder` with these bytes. */
  const answer = (folder: string, ...pieces: string[]): void => {
    server.misbehaviour = (request, response) => {
      if (request.url !== `/dav/root/${folder}/` || request.headers['depth'] !== '1') return false;
      response.writeHead(207);
      for (const piece of pieces) response.write(piece);
      response.end();
      return true;
    };
  };

  const folderAa = entryXml('/dav/root/blobs/aa/', null);
  const idIn = (folder: string): string => `${newId().slice(0, -2)}${folder}`;
  const entryIn = (name: string, href = `/dav/root/blobs/aa/${name}`): string => entryXml('', one, href);

  test('it may write addresses in many ways', async () => {
    const ids = Array.from({ length: 5 }, () => idIn('aa')).sort();
    const [first = '', second = '', third = '', fourth = '', fifth = ''] = ids;
    const escaped = [...third].map((letter) => `%${letter.charCodeAt(0).toString(16)}`).join('');
    answer(
      'blobs/aa',
      multistatus(
        entryXml('', null, '/%64av/root/blobs/aa'),
        entryIn(first),
        entryIn(second, `http://127.0.0.1:${server.port}/dav/root/blobs/aa/${second}`),
        entryIn(third, `/dav/root/blobs/aa/${escaped}`),
        entryIn(fourth, `/dav/./root/x/../blobs//aa/${fourth}`),
        entryIn(fifth, `${fifth}`),
      )
        .replace(/D:/g, 'anything:')
        .replace('xmlns:D', 'xmlns:anything'),
    );
    const { blobs } = await store.list(null, 10);
    expect(blobs.map((blob) => blob.key)).toEqual(ids.map(blobKey));
    expect(blobs[0]).toEqual({ key: blobKey(first), size: 1, modifiedAt: new Date('2026-11-21T10:47:16Z') });
  });

  test('what it names elsewhere makes all of it void, and is never gone after', async () => {
    const id = idIn('aa');
    const hrefs = [
      `http://127.0.0.1:${other.port}/dav/root/blobs/aa/${id}`,
      `//127.0.0.1:${other.port}/dav/root/blobs/aa/${id}`,
      `https://example.org/dav/root/blobs/aa/${id}`,
      `/dav/root/blobs/aa/../${id}`,
      `/dav/root/blobs/aa/%2e%2e/%2E%2E/${id}`,
      `/dav/root/blobs/aa/deeper/${id}`,
      `/root/blobs/aa/${id}`,
      '/',
      'http://[',
      'file:///etc/passwd',
    ];
    for (const href of hrefs) {
      answer('blobs/aa', multistatus(folderAa, entryIn(idIn('aa')), entryIn(id, href)));
      await refuses(store.list(null, 10), 'unavailable');
    }
    answer('tmp', multistatus(entryXml('/dav/root/tmp', null), entryXml('', one, `/dav/root/${blobKey(id)}`)));
    await refuses(store.sweep(new Date('2100-01-01')), 'unavailable');
  });

  test('names that are not ours are left out, however they are written', async () => {
    const id = idIn('aa');
    const names = ['%zz', '%', '%2e%2e%2fx', 'a%20b', '%C3%BC', `${id}.part`, id.toUpperCase(), idIn('ab'), '%00'];
    const more = [entryXml(`/dav/root/blobs/aa/${idIn('aa')}`, null), entryIn('&lt;&amp;&#65;')];
    answer('blobs/aa', multistatus(folderAa, ...names.map((name) => entryIn(name)), entryIn(id), ...more));
    expect((await store.list(null, 100)).blobs.map((blob) => blob.key)).toEqual([blobKey(id)]);
  });

  test('a listing that is not whole is none', async () => {
    const entry = entryIn(idIn('aa'));
    const good = multistatus(folderAa, entry);
    const broken = [
      '',
      'x',
      '<html><body>Log in</body></html>',
      '{"entries":[]}',
      good.slice(0, -1),
      good.slice(0, good.lastIndexOf('<')),
      good.slice(0, good.lastIndexOf('<D:response>')),
      multistatus(),
      multistatus(entry),
      multistatus(entryXml('/dav/root/blobs/aa/', one), entry),
      good.replace('DAV:', 'urn:other'),
      good.replace(/<D:href>[^<]*<\/D:href>/, ''),
      good.replace('<D:getcontentlength>1</D:getcontentlength>', ''),
      good.replace('<D:getcontentlength>1<', '<D:getcontentlength>-1<'),
      multistatus(
        folderAa,
        `<D:response><D:href>${idIn('aa')}</D:href><D:status>HTTP/1.1 403 No</D:status></D:response>`,
      ),
      `${good}${good}`,
    ];
    for (const text of broken) {
      answer('blobs/aa', text);
      await refuses(store.list(null, 10), 'unavailable');
    }
    answer('blobs/aa', Buffer.from(good, 'utf16le').toString('latin1'));
    await refuses(store.list(null, 10), 'unavailable');
    server.misbehaviour = () => false;
    server.things.delete('/dav/root/blobs');
    await refuses(store.list(null, 10), 'unavailable');
  });

  test('bombs, outer entities and depths of XML do nothing', async () => {
    const lol = Array.from({ length: 9 }, (_, at) => `<!ENTITY l${at + 1} "${`&l${at};`.repeat(10)}">`).join('');
    const bomb = `<?xml version="1.0"?><!DOCTYPE m [<!ENTITY l0 "lol">${lol}]>`;
    const outer = `<?xml version="1.0"?><!DOCTYPE m SYSTEM "http://127.0.0.1:${other.port}/dtd" [<!ENTITY x SYSTEM "file:///etc/passwd">]>`;
    const good = multistatus(folderAa, entryIn(idIn('aa'))).replace('<?xml version="1.0"?>', '');
    const entity = good.replace('<D:href>', '<D:href>&l9;&x;');
    const deep = good.replace('<D:prop>', `<D:prop>${'<x>'.repeat(40)}${'</x>'.repeat(40)}`);
    const deepest = `<a>`.repeat(100_000);
    for (const text of [bomb + good, bomb + entity, outer + good, outer + entity, entity, deep, deepest]) {
      answer('blobs/aa', text);
      await refuses(store.list(null, 10), 'unavailable');
    }
  });

  test('an answer without an end is left', async () => {
    const starts: Record<string, { start: string; again: () => string }> = {
      entries: { start: folderAa, again: () => entryIn(idIn('aa')) },
      'one entry twice': { start: folderAa, again: () => folderAa },
      text: { start: '<D:response><D:href>', again: () => 'x'.repeat(1000) },
      attributes: { start: '<D:response ', again: () => `a${newId()}="" ` },
      'a name': { start: '<D:', again: () => 'x'.repeat(1000) },
      elements: { start: '<D:response>', again: () => '<D:x/>' },
      comments: { start: '', again: () => `<!-- ${'x'.repeat(1000)} -->` },
      space: { start: '', again: () => ' '.repeat(1000) },
      'a doctype': { start: '<!DOCTYPE x [', again: () => '<!ENTITY x "y">'.repeat(100) },
    };
    const patient = await WebdavStore.open(server.config, testAgents());
    for (const [what, { start, again }] of Object.entries(starts)) {
      server.misbehaviour = (request, response) => {
        if (request.method !== 'PROPFIND') return false;
        response.writeHead(207).write(`<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">${start}`);
        const more = (): void => {
          if (response.writable) response.write(Array.from({ length: 50 }, again).join(''), () => setImmediate(more));
        };
        more();
        return true;
      };
      // What is no entry is left long before the limit of a listing.
      const asked = /entr/.test(what) ? store : patient;
      await refuses(asked.list(null, 10), 'unavailable');
      await refuses(asked.sweep(new Date()), 'unavailable');
      await refuses(asked.stat(blobKey(idIn('aa'))), 'unavailable');
    }
  });

  test('a trickle without an end is left too', async () => {
    const quick = await WebdavStore.open(server.config, testAgents(), { ...limits, callMs: 200, listMs: 200 });
    server.misbehaviour = (request, response) => {
      response.writeHead(207).write('<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">');
      const timer = setInterval(() => response.write(' '), 20);
      request.socket.once('close', () => clearInterval(timer));
      return true;
    };
    await refuses(quick.list(null, 10), 'unavailable');
    await refuses(quick.stat(blobKey(newId())), 'unavailable');
  });

  test('a folder of 100,000 blobs is told page by page, and asked for a few times', async () => {
    const ids = Array.from({ length: 100_000 }, () => idIn('aa'));
    const patient = await WebdavStore.open(server.config, testAgents());
    answer('blobs/aa', multistatus(folderAa, ...ids.map((id) => entryIn(id))));
    const seen: ListedBlob[] = [];
    let cursor: string | null = null;
    do {
      const page = await patient.list(cursor, 5_000);
      seen.push(...page.blobs);
      cursor = page.next;
    } while (cursor !== null);
    expect(seen.map(({ key }) => key)).toEqual(ids.sort().map(blobKey));
    const asked = server.requests.filter((request) => request.endsWith('/blobs/aa/'));
    // Of some twenty pages.
    expect(asked.length).toBeLessThan(10);
  });

  test('only what is ours and old by both clocks is swept', async () => {
    const [old, young] = [new Date('2026-11-20T10:00:00Z'), new Date('2026-11-21T10:40:00Z')];
    const names = [temporaryName(old), temporaryName(young), 'foreign.txt'];
    for (const name of names) server.things.set(`/dav/root/tmp/${name}`, Buffer.from('x'));
    // The server says that all were changed at 10:47:16.
    expect(await store.sweep(new Date('2026-11-21T10:00:00Z'))).toBe(0);
    expect(await store.sweep(new Date('2026-11-21T10:50:00Z'))).toBe(2);
    expect(server.temporary).toEqual(['/dav/root/tmp/foreign.txt']);
  });

  test('cursors of nobody are refused', async () => {
    for (const cursor of ['', 'x', 'aa', '../x', `aa/${newId()}/x`, `zz/${newId()}`]) {
      await refuses(store.list(cursor, 10), 'validation_failed');
    }
  });

  test('it may arrive in any pieces', () => {
    const entries = [folderAa, entryIn(idIn('aa')), entryIn('%C3%BC'), entryXml('/ü & more', one, '/ü&amp;more')];
    const bytes = Buffer.from(multistatus(...entries));
    const parse = (pieces: Buffer[]): DavEntry[] => {
      const found: DavEntry[] = [];
      const parser = new MultistatusParser((entry) => found.push(entry));
      for (const piece of pieces) parser.write(piece);
      parser.end();
      return found;
    };
    const expected = parse([bytes]);
    expect(expected).toHaveLength(4);
    fc.assert(
      fc.property(fc.array(fc.nat(bytes.length)), (cuts) => {
        const places = [0, ...cuts.sort((a, b) => a - b), bytes.length];
        const pieces = places.slice(1).map((place, index) => bytes.subarray(places[index], place));
        expect(parse(pieces)).toEqual(expected);
      }),
    );
  });
});
