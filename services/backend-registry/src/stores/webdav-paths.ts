import { validationError } from '@stowage/common/errors';
import { oddAnswer } from './webdav-errors.ts';

/** Printable ASCII, apart from what servers take for a separator. */
const segmentPattern = /^[\x20-\x7e]+$/;

/** Where a backend lies on its server, and how its paths are written in requests and in answers. */
export class WebdavPaths {
  readonly url: URL;
  /** The decoded segments of the url's own path, and below it those of root_path. */
  readonly #base: string[];
  readonly #root: string[];

  /** Throws `validation_failed` for what can not be such a place. */
  constructor(url: string, rootPath: string) {
    this.url = checkedUrl(url);
    this.#base = segmentsOf(this.url.pathname);
    this.#root = checkedRoot(rootPath);
  }

  /** The path of what lies at `segments` below root_path, as it is sent. */
  file(...segments: string[]): string {
    return pathOf([...this.#base, ...this.#root, ...segments]);
  }

  /** As file, of a folder. */
  folder(...segments: string[]): string {
    const path = this.file(...segments);
    return path.endsWith('/') ? path : `${path}/`;
  }

  /** The folders from below the url down to root_path, in the order in which they are made. */
  rootLevels(): string[] {
    return this.#root.map((_, index) => `${pathOf([...this.#base, ...this.#root.slice(0, index + 1)])}/`);
  }

  /** The address of a path, for the header Destination. */
  address(path: string): string {
    return `${this.url.protocol}//${this.url.host}${path}`;
  }

  /**
   * What an answer about `path` calls `href`: '' for the thing itself, the decoded name for what lies right below it.
   * Such an address is only ever compared. One that points anywhere else makes the whole answer void: a server, or
   * a proxy before it, that names things wrongly can not be asked what is there.
   */
  nameOf(path: string, href: string): string {
    const asked = segmentsOf(path);
    const named = this.#segmentsOfHref(href, new URL(path, this.url).href);
    const within = named.length <= asked.length + 1 && asked.every((segment, index) => segment === named[index]);
    if (!within) throw oddAnswer('an href leads out of the folder that was asked for');
    return named[asked.length] ?? '';
  }

  #segmentsOfHref(href: string, base: string): string[] {
    if (!URL.canParse(href, base)) throw oddAnswer('an href is no address');
    const { host, pathname } = new URL(href, base);
    // Not the scheme: behind a proxy that ends TLS it is another.
    if (host !== this.url.host) throw oddAnswer('an href leads to another server');
    return segmentsOf(pathname);
  }
}

function checkedUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  const plain = url && !url.username && !url.password && !url.search && !url.hash;
  if (plain && (url.protocol === 'http:' || url.protocol === 'https:')) return url;
  const detail = 'must be an http or https address without user, query or fragment';
  throw validationError([{ pointer: '/config/url', detail }]);
}

function checkedRoot(text: string): string[] {
  const segments = text.split('/').filter((segment) => segment !== '');
  const good = segments.every(
    (segment) => segmentPattern.test(segment) && segment !== '.' && segment !== '..' && !segment.includes('\\'),
  );
  if (good) return segments;
  throw validationError([{ pointer: '/config/root_path', detail: 'must be a path of ASCII characters without ..' }]);
}

function pathOf(segments: string[]): string {
  return `/${segments.map(encodeURIComponent).join('/')}`;
}

function segmentsOf(path: string): string[] {
  return path
    .split('/')
    .filter((segment) => segment !== '')
    .map(decoded);
}

/** A name with a broken escape is nobody's we know, but does not spoil what lies beside it. */
function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
