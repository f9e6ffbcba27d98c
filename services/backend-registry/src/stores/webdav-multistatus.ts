import sax from 'sax';
import type { QualifiedTag } from 'sax';
import { AppError } from '@stowage/common/errors';
import { oddAnswer } from './webdav-errors.ts';

/** One resource in an answer to PROPFIND. */
export interface DavEntry {
  /** As the server wrote it: for WebdavPaths.nameOf only. */
  href: string;
  /** Of the resource as a whole, where the server gave one instead of properties. */
  status: number | null;
  folder: boolean;
  /** In bytes. */
  size: number | null;
  modifiedAt: Date | null;
}

type Properties = Pick<DavEntry, 'folder' | 'size' | 'modifiedAt'>;

const dav = 'DAV:';
const maxDepth = 32;
const maxTextChars = 8_192;

/** Between two entries, in characters; what arrives at once may come on top. */
const maxEntryChars = 256 * 1024;

/**
 * Reads a multistatus (RFC 4918) as it arrives, so that one entry is in memory at a time. A document type is refused, so
 * no entity is ever declared, and depth and the length of an entry are bounded. Throws AppError.
 */
export class MultistatusParser {
  readonly #onEntry: (entry: DavEntry) => void;
  readonly #decoder = new TextDecoder('utf-8', { fatal: true });
  readonly #parser = sax.parser(true, { xmlns: true, position: false });
  /** The local names of the open elements; '?' for one of another namespace. */
  readonly #open: string[] = [];
  #text = '';
  #charsSinceEntry = 0;
  #entry: DavEntry | null = null;
  #found: Partial<Properties> = {};
  #foundStatus = 0;
  #whole = false;

  constructor(onEntry: (entry: DavEntry) => void) {
    this.#onEntry = onEntry;
    const parser = this.#parser;
    parser.onerror = (error): never => {
      throw error;
    };
    parser.ondoctype = (): never => {
      throw oddAnswer('a multistatus has a document type');
    };
    parser.onopentag = (tag): void => this.#onOpen(tag);
    parser.onclosetag = (): void => this.#onClose();
    parser.ontext = (text): void => this.#onText(text);
    parser.oncdata = (text): void => this.#onText(text);
  }

  /** Takes the next bytes. */
  write(piece: Uint8Array): void {
    this.#guarded(() => this.#take(this.#decoder.decode(piece, { stream: true })));
  }

  /** To be called after the last bytes: an answer that ends too early says nothing. */
  end(): void {
    this.#guarded(() => {
      this.#take(this.#decoder.decode());
      this.#parser.close();
    });
    if (!this.#whole) throw oddAnswer('the answer holds no multistatus');
  }

  #take(text: string): void {
    this.#parser.write(text);
    this.#charsSinceEntry += text.length;
    if (this.#charsSinceEntry > maxEntryChars) throw oddAnswer('an entry of a multistatus is too long');
  }

  #guarded(work: () => void): void {
    try {
      work();
    } catch (error) {
      // What the parser says may quote the answer.
      throw error instanceof AppError ? error : oddAnswer('a multistatus is no well-formed XML');
    }
  }

  #onOpen(tag: sax.Tag | QualifiedTag): void {
    const name = 'uri' in tag && tag.uri === dav ? tag.local : '?';
    this.#open.push(name);
    this.#text = '';
    if (this.#open.length > maxDepth) throw oddAnswer('a multistatus is nested too deeply');
    const path = this.#open.join('/');
    if (path === 'multistatus/response') {
      this.#entry = { href: '', status: null, folder: false, size: null, modifiedAt: null };
    } else if (path === 'multistatus/response/propstat') {
      this.#found = {};
      this.#foundStatus = 0;
    } else if (path === 'multistatus/response/propstat/prop/resourcetype/collection') {
      this.#found.folder = true;
    }
  }

  #onText(text: string): void {
    this.#text += text;
    if (this.#text.length > maxTextChars) throw oddAnswer('a value in a multistatus is too long');
  }

  #onClose(): void {
    const path = this.#open.join('/');
    const text = this.#text.trim();
    this.#open.pop();
    this.#text = '';
    if (path === 'multistatus') this.#whole = true;
    if (!this.#entry) return;
    if (path === 'multistatus/response') this.#finishEntry(this.#entry);
    else this.#note(path.slice('multistatus/response/'.length), text, this.#entry);
  }

  #note(path: string, text: string, entry: DavEntry): void {
    if (path === 'href') entry.href = text;
    else if (path === 'status') entry.status = statusIn(text);
    else if (path === 'propstat/status') this.#foundStatus = statusIn(text);
    else if (path === 'propstat/prop/getcontentlength') this.#found.size = sizeIn(text);
    else if (path === 'propstat/prop/getlastmodified') this.#found.modifiedAt = dateIn(text);
    else if (path === 'propstat' && this.#foundStatus === 200) Object.assign(entry, this.#found);
  }

  #finishEntry(entry: DavEntry): void {
    if (entry.href === '') throw oddAnswer('an entry of a multistatus has no href');
    this.#entry = null;
    this.#charsSinceEntry = 0;
    this.#onEntry(entry);
  }
}

function statusIn(text: string): number {
  return Number(/^HTTP\/\d(?:\.\d)? (\d{3})\b/.exec(text)?.[1] ?? 0);
}

function sizeIn(text: string): number | null {
  return /^\d{1,15}$/.test(text) ? Number(text) : null;
}

function dateIn(text: string): Date | null {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? null : date;
}
