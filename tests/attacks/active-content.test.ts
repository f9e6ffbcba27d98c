import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { beacon, specimens } from '@stowage/tests/support/active-content';
import type { Specimen } from '@stowage/tests/support/active-content';
import { BrowserProxy, systemHost } from '@stowage/tests/support/browser-proxy';
import { Chromium, hasChromium } from '@stowage/tests/support/chromium';
import type { Page } from '@stowage/tests/support/chromium';
import { expectStatus } from '@stowage/tests/support/client';
import type { Client } from '@stowage/tests/support/client';
import { policyOf } from '@stowage/tests/support/content';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { uniqueName } from '@stowage/tests/support/system';
import { at, inBatches } from '@stowage/tests/support/tree';

interface Stored extends Specimen {
  fileId: string;
  /** The type that it is served as. */
  served: string;
}

const own = `http://${systemHost}`;
const attacker = 'http://attacker.test';
const aPage = 30;
let root: Client;
let proxy: BrowserProxy;
let browser: Chromium;
let page: Page;
let stored: Stored[] = [];
/** Without those whose lie changes nothing of how they are served. */
let distinct: Stored[] = [];
/** One of each kind, which claims to be what it is. */
let plain: Stored[] = [];
/** Those of them that have a preview. */
let previewed: Stored[] = [];
let fences = 0;

(hasChromium ? describe : describe.skip)('Active content in a real browser (T22, T23, T24)', () => {
  beforeAll(async () => {
    root = await admin();
    proxy = await BrowserProxy.start({ url: baseUrl(), token: root.token ?? '' });
    browser = await Chromium.start(proxy.url);
    page = await browser.open();
    const home = (await root.makeDirectory(uniqueName('active')))['id'];
    stored = await inBatches(
      await specimens(),
      async (specimen) => {
        const type = specimen.claim === '' ? {} : { type: specimen.claim };
        const file = await root.putFile(specimen.name, specimen.bytes, { directory: home, ...type });
        return { ...specimen, fileId: file['id'], served: file['media_type'] };
      },
      8,
    );
    const kindOf = ({ name, served }: Stored): string => `${name.slice(name.indexOf('-', 4))} ${served}`;
    distinct = [...new Map(stored.map((specimen) => [kindOf(specimen), specimen])).values()];
    plain = stored.filter(({ id }) => id.endsWith('-0'));
    const previews = await inBatches(plain, ({ fileId }) => root.get(`/api/files/${fileId}/preview`), 4);
    previewed = plain.filter((_specimen, n) => previews[n]?.status === 200);
    expect(stored.length).toBeGreaterThanOrEqual(300);
    expect(previewed.length).toBeGreaterThan(50);
  }, 120_000);

  afterAll(async () => {
    await browser.close();
    await proxy.close();
  });

  /** Waits until what the page set off has left it: the page's own next requests come after. */
  async function settle(): Promise<void> {
    fences += 1;
    const fence = `${own}/fence/${fences}`;
    proxy.serve(fence, () => ({ type: 'text/plain', bytes: '' }));
    const ask = `fetch(${JSON.stringify(fence)}, { mode: 'no-cors' })`;
    await page.evaluate(`${ask}.then(() => ${ask}).then(() => ${ask})`);
  }

  /** Opens a page of the test's that holds `body`; gives what left the browser meanwhile, and the page's title. */
  async function show(origin: string, body: string): Promise<{ strays: string[]; title: unknown }> {
    const url = `${origin}/page/${fences}`;
    proxy.serve(url, () => ({ type: 'text/html', bytes: `<!doctype html><title>quiet</title>${body}` }));
    const before = proxy.strays.length;
    await page.goTo(url);
    await settle();
    return { strays: proxy.strays.slice(before), title: await page.evaluate('document.title') };
  }

  function contentUrl({ fileId }: Stored, view: string): string {
    return `${own}/api/files/${fileId}/${view}`;
  }

  /** All of them, some on a page; gives the pages on which anything happened. */
  async function showAll(
    origin: string,
    some: readonly Stored[],
    embed: (specimen: Stored) => string,
  ): Promise<unknown[]> {
    const seen: unknown[] = [];
    for (let from = 0; from < some.length; from += aPage) {
      const shown = await show(
        origin,
        some
          .slice(from, from + aPage)
          .map(embed)
          .join('\n'),
      );
      if (shown.strays.length > 0 || shown.title !== 'quiet') seen.push({ from, ...shown });
    }
    return seen;
  }

  /** Each of them by its own address; gives those at which anything happened. */
  async function openAll(some: readonly Stored[], view: string): Promise<unknown[]> {
    const seen: unknown[] = [];
    for (const specimen of some) {
      const before = proxy.strays.length;
      const isPage = await page.goTo(contentUrl(specimen, view));
      const title = isPage ? await page.evaluate('document.title') : '';
      const strays = proxy.strays.slice(before);
      if (strays.length > 0 || String(title).startsWith('ran')) seen.push({ name: specimen.name, title, strays });
    }
    // What was on its way at the last one.
    const { strays } = await show(own, '');
    return [...seen, ...strays];
  }

  const frame = (url: string): string => `<iframe src="${url}"></iframe>`;
  const script = (url: string): string => `<script src="${url}"></script>`;
  const style = (url: string): string => `<link rel="stylesheet" href="${url}">`;

  test('the same files without our headers run scripts and call out, so that this suite would see it', async () => {
    for (const specimen of plain) proxy.serve(`${own}/bare/${specimen.id}`, () => specimen);
    const before = proxy.strays.length;
    for (let from = 0; from < plain.length; from += 10) {
      const urls = plain.slice(from, from + 10).map(({ id }) => `${own}/bare/${id}`);
      await show(own, urls.map((url) => frame(url) + script(url) + style(url)).join('\n'));
    }
    const called = new Set(proxy.strays.slice(before).map((address) => new URL(address).hostname));
    const active = plain.filter(({ id }) => called.has(new URL(beacon(id)).hostname));
    expect(active.length).toBeGreaterThan(80);
    const { id } = at(active, 0);
    const { strays, title } = await show(own, frame(`${own}/bare/${id}`));
    expect(strays).toEqual(expect.arrayContaining([`${beacon(id)}image`, `${beacon(id)}fetch`]));
    expect(title).toBe(`ran ${id}`);
  });

  test('whatever they say they are, only pictures, sound, film and PDF come without a sandbox', async () => {
    const wrong = await inBatches(stored, async (specimen) => {
      const path = `/api/files/${specimen.fileId}`;
      const [stream, download] = [
        await root.call('HEAD', `${path}/stream`),
        await root.call('HEAD', `${path}/download`),
      ];
      const isMedia = /^(image\/(?!svg)|audio\/|video\/|application\/pdf$)/.test(specimen.served);
      const isText = specimen.served === 'text/plain';
      const right =
        stream.headers.get('x-content-type-options') === 'nosniff' &&
        (isMedia || policyOf(stream.headers).includes('sandbox')) &&
        (isMedia || isText || stream.headers.get('content-disposition')?.startsWith('attachment')) &&
        download.headers.get('content-disposition')?.startsWith('attachment');
      return right ? [] : [{ name: specimen.name, headers: Object.fromEntries(stream.headers) }];
    });
    expect(wrong.flat()).toEqual([]);
  });

  test('on a page of our own origin, in frames and objects, nothing runs', async () => {
    const embedded = (url: string): string => `${frame(url)}<object data="${url}"></object>`;
    expect(await showAll(own, distinct, (specimen) => embedded(contentUrl(specimen, 'stream')))).toEqual([]);
    expect(await showAll(own, previewed, (specimen) => frame(contentUrl(specimen, 'preview')))).toEqual([]);
    expect(await showAll(own, plain, (specimen) => frame(contentUrl(specimen, 'download')))).toEqual([]);
  }, 180_000);

  test('opened by their own addresses, nothing runs', async () => {
    expect(await openAll(distinct, 'stream')).toEqual([]);
    expect(await openAll(previewed, 'preview')).toEqual([]);
  }, 180_000);

  test('as scripts or style sheets of our own origin nothing runs, but for what is served as one', async () => {
    const asOne = /^(text|application)\/(javascript|css)$/;
    const others = distinct.filter(({ served }) => !asOne.test(served));
    expect(others.length).toBeGreaterThan(distinct.length * 0.8);
    const embedded = (specimen: Stored): string =>
      script(contentUrl(specimen, 'stream')) + style(contentUrl(specimen, 'stream'));
    expect(await showAll(own, others, embedded)).toEqual([]);
    expect(await showAll(own, previewed, (specimen) => script(contentUrl(specimen, 'preview')))).toEqual([]);
  });

  test('on a page of another origin nothing runs or is shown, though the request has the token', async () => {
    const embedded = (specimen: Stored): string => {
      const url = contentUrl(specimen, 'stream');
      return `${script(url)}${style(url)}${frame(url)}<img src="${url}" onload="document.title='shown'">`;
    };
    expect(await showAll(attacker, plain, embedded)).toEqual([]);
    const url = JSON.stringify(contentUrl(at(plain, 0), 'stream'));
    expect(await page.evaluate(`fetch(${url}, { mode: 'no-cors' }).then(() => 'read', () => 'refused')`)).toBe(
      'refused',
    );
  });

  test('a picture that is one is shown on our own origin', async () => {
    const picture = at(
      stored.filter(({ served }) => served === 'image/png'),
      0,
    );
    for (const view of ['stream', 'preview'])
      expect(await show(own, `<img src="${contentUrl(picture, view)}" onload="document.title='shown'">`)).toEqual({
        strays: [],
        title: 'shown',
      });
    expectStatus(await root.get(`/api/files/${picture.fileId}/stream`), 200);
  });
});
