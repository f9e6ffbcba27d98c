import { argon2, randomBytes, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { validationError } from '@stowage/common/errors';
import { Semaphore } from './semaphore.ts';

const run = promisify(argon2);

/** OWASP's first choice for Argon2id: 19 MiB, two passes, one lane. */
const present = { memory: 19_456, passes: 2, parallelism: 1 };
const tagLength = 32;
const saltLength = 16;

/** Each hash takes 19 MiB: a burst of logins must not take them all at once. */
const slots = new Semaphore(4);

type Parameters = typeof present;

/** Hashes a password with Argon2id (RFC 9106); gives the PHC string. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(saltLength);
  const tag = await derive(password, salt, present);
  const { memory, passes, parallelism } = present;
  return `$argon2id$v=19$m=${memory},t=${passes},p=${parallelism}$${unpadded(salt)}$${unpadded(tag)}`;
}

/** Compares in constant time; also tells whether the stored hash should be made anew with today's parameters. */
export async function verifyPassword(password: string, stored: string): Promise<{ right: boolean; outdated: boolean }> {
  const match = /^\$argon2id\$v=19\$m=(\d+),t=(\d+),p=(\d+)\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/.exec(stored);
  if (!match) throw new Error('A stored password hash is not a PHC string of Argon2id.');
  const [memory, passes, parallelism] = [Number(match[1]), Number(match[2]), Number(match[3])];
  const expected = Buffer.from(match[5] ?? '', 'base64');
  const tag = await derive(password, Buffer.from(match[4] ?? '', 'base64'), { memory, passes, parallelism });
  const right = tag.length === expected.length && timingSafeEqual(tag, expected);
  const outdated = memory < present.memory || passes < present.passes || parallelism < present.parallelism;
  return { right, outdated };
}

/** Refuses a password that may not be set: 12 to 256 characters. */
export function checkNewPassword(password: string, pointer: string): void {
  const length = [...password].length;
  if (length < 12 || length > 256 || !password.isWellFormed()) {
    throw validationError([{ pointer, detail: 'must have 12 to 256 characters' }]);
  }
}

async function derive(password: string, salt: Buffer, parameters: Parameters): Promise<Buffer> {
  return slots.run(() => run('argon2id', { message: password, nonce: salt, tagLength, ...parameters }));
}

function unpadded(bytes: Buffer): string {
  return bytes.toString('base64').replace(/=+$/, '');
}
