import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';

const algorithm = 'aes-256-gcm';
const nonceBytes = 12;
const tagBytes = 16;
const keyIdPattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** Bytes of a key. */
export const keyBytes = 32;

/** A key with its name. */
export interface SecretKey {
  id: string;
  key: Buffer;
}

/** What lies in the database in place of a secret. */
export interface Sealed {
  keyId: string;
  nonce: Buffer;
  /** The ciphertext with its tag at the end. */
  sealed: Buffer;
}

/** A secret could not be opened. Says which key, never what was sealed. */
export class SealError extends Error {
  override readonly name = 'SealError';
}

/** The keys of this process: the first seals, all open. */
export class KeyRing {
  readonly #keys: readonly SecretKey[];

  constructor(keys: readonly SecretKey[]) {
    this.#keys = keys;
  }

  /** The ids of all keys, the sealing one first. */
  get ids(): string[] {
    return this.#keys.map(({ id }) => id);
  }

  /** The id of the key that seals. */
  get sealingId(): string {
    return this.#sealing().id;
  }

  /** Seals `text`; it opens only with the same `context`, which says what it belongs to. */
  seal(text: string, context: readonly string[]): Sealed {
    const { id, key } = this.#sealing();
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv(algorithm, key, nonce).setAAD(boundTo(id, context));
    return {
      keyId: id,
      nonce,
      sealed: Buffer.concat([cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]),
    };
  }

  /** Throws SealError for an unknown or another key, changed bytes, or another context. */
  open({ keyId, nonce, sealed }: Sealed, context: readonly string[]): string {
    const found = this.#keys.find(({ id }) => id === keyId);
    if (!found) throw new SealError(`there is no key "${keyId}" in STOWAGE_SECRET_KEYS`);
    if (nonce.length !== nonceBytes || sealed.length < tagBytes) throw new SealError('what is sealed was cut short');
    const decipher = createDecipheriv(algorithm, found.key, nonce, { authTagLength: tagBytes })
      .setAAD(boundTo(keyId, context))
      .setAuthTag(sealed.subarray(-tagBytes));
    try {
      return Buffer.concat([decipher.update(sealed.subarray(0, -tagBytes)), decipher.final()]).toString('utf8');
    } catch {
      throw new SealError(`the key "${keyId}" does not open it: another key, or a row that was changed or moved`);
    }
  }

  /** A fingerprint of what a request says under each key, the sealing one first; hex. None can be made without its key. */
  fingerprints(request: readonly string[]): string[] {
    this.#sealing();
    return this.#keys.map(({ key }) => {
      const derived = Buffer.from(hkdfSync('sha256', key, '', 'stowage idempotency 1', keyBytes));
      return createHmac('sha256', derived).update(JSON.stringify(request)).digest('hex');
    });
  }

  #sealing(): SecretKey {
    const [first] = this.#keys;
    if (!first) throw new SealError('there is no key');
    return first;
  }
}

/** JSON, so that no two contexts give the same bytes. */
function boundTo(keyId: string, context: readonly string[]): Buffer {
  return Buffer.from(JSON.stringify(['stowage secret 1', keyId, ...context]));
}

/** Parses `id:base64,…`. The messages of its errors quote no key. */
export function parseSecretKeys(text: string): SecretKey[] {
  const keys = text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '')
    .map((item, index) => parseSecretKey(item, `key ${index + 1}`));
  if (keys.length === 0) throw new Error('must hold a key as id:base64');
  if (new Set(keys.map(({ id }) => id)).size < keys.length) throw new Error('must not hold two keys of one id');
  return keys;
}

/**
 * Parses `id:base64` of 32 bytes. The messages of its errors call it `name`, as what stands for an id may be a key.
 */
export function parseSecretKey(item: string, name = 'the key'): SecretKey {
  const [id = '', encoded = '', ...rest] = item.split(':');
  if (rest.length > 0 || !keyIdPattern.test(id)) {
    throw new Error('must hold keys as id:base64, where an id is 1 to 64 letters, digits and ._-');
  }
  const key = Buffer.from(encoded, 'base64');
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(encoded) || key.length !== keyBytes) {
    throw new Error(`must hold ${keyBytes} bytes in base64 after the id of ${name}: try openssl rand -base64 32`);
  }
  if (new Set(key).size < 8) throw new Error(`holds no random bytes for ${name}: try openssl rand -base64 32`);
  return { id, key };
}
