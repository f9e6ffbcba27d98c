import { AppError, validationError } from '@stowage/common/errors';
import type { FastifyInstance } from 'fastify';

const maxDepth = 32;
/** No request has a hundredth of it; a MiB of tiny values costs a second of CPU to parse and to refuse. */
const maxValues = 10_000;
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false });

/** Parses JSON bodies strictly: UTF-8, at most 32 levels deep, of few values, no `__proto__`, no half characters; an empty body is `{}`. */
export function addJsonParser(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body, done) => {
    try {
      const parsed = parseJsonBody(typeof body === 'string' ? Buffer.from(body) : body);
      // No body is {}, but null is a body, and not an object.
      if (parsed === null) throw malformed('The body is not a JSON object.');
      done(null, parsed);
    } catch (error) {
      done(error instanceof Error ? error : new Error('malformed'));
    }
  });
  app.addHook('preValidation', async (request) => {
    if (request.body === undefined || request.body === null) request.body = {};
  });
}

/** Throws `validation_failed` for what is not JSON as we take it. */
export function parseJsonBody(body: Buffer): unknown {
  if (body.length === 0) return {};
  const text = decode(body);
  checkShape(text);
  let parsed: unknown;
  try {
    parsed = JSON.parse(text, refusePrototype);
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw malformed('The body is not valid JSON.');
  }
  if (surrogateEscape.test(text)) refuseHalfCharacters(parsed, '');
  return parsed;
}

/** In UTF-8 text the only way to half a character. */
const surrogateEscape = /\\u[dD][89a-fA-F]/;

/** An unpaired surrogate can't be said in UTF-8: between services it would silently become another character. */
function refuseHalfCharacters(value: unknown, pointer: string): void {
  if (typeof value === 'string' && !value.isWellFormed()) {
    throw validationError([{ pointer, detail: 'must not contain unpaired surrogates' }]);
  }
  if (typeof value !== 'object' || value === null) return;
  for (const [key, inner] of Object.entries(value)) {
    refuseHalfCharacters(key, pointer);
    refuseHalfCharacters(inner, `${pointer}/${escapePointer(key)}`);
  }
}

function escapePointer(key: string): string {
  return key.replaceAll('~', '~0').replaceAll('/', '~1').slice(0, 200);
}

function decode(body: Buffer): string {
  try {
    return utf8.decode(body);
  } catch {
    throw malformed('The body is not valid UTF-8.');
  }
}

function checkShape(text: string): void {
  let depth = 0;
  let values = 1;
  let inString = false;
  for (let i = 0; i < text.length; i += 1) {
    const char = text.charCodeAt(i);
    if (inString) {
      if (char === 0x5c) i += 1;
      else if (char === 0x22) inString = false;
    } else if (char === 0x22) inString = true;
    else if (char === 0x7b || char === 0x5b) {
      depth += 1;
      if (depth > maxDepth) throw malformed(`The body is nested more than ${maxDepth} levels deep.`);
    } else if (char === 0x7d || char === 0x5d) depth -= 1;
    else if (char === 0x2c) {
      values += 1;
      if (values > maxValues) throw malformed(`The body holds more than ${maxValues} values.`);
    }
  }
}

function refusePrototype(key: string, value: unknown): unknown {
  if (key === '__proto__') throw malformed('The body has a field that is never one of ours: __proto__.');
  if (typeof value === 'number' && !Number.isFinite(value)) throw malformed('The body has a number out of bounds.');
  return value;
}

function malformed(detail: string): AppError {
  return new AppError('validation_failed', detail, { members: { errors: [{ pointer: '', detail }] } });
}
