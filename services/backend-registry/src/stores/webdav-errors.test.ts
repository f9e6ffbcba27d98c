import { describe, expect, test } from '@jest/globals';
import { inspect } from 'node:util';
import { AppError } from '@stowage/common/errors';
import { isRefusal } from './store-refusal.ts';
import { connectionError, statusError } from './webdav-errors.ts';

function systemError(code: string, members: object = {}): Error {
  return Object.assign(new Error('what happened'), { code, ...members });
}

describe('errors of a WebDAV server', () => {
  test('what an admin has to mend is a refusal, what may pass is none', () => {
    for (const status of [401, 403, 301, 302, 307, 308]) expect(isRefusal(statusError(status, 'PUT'))).toBe(true);
    for (const status of [400, 404, 409, 423, 429, 500, 502, 503]) {
      const error = statusError(status, 'PUT');
      expect([error.code, isRefusal(error)]).toEqual(['unavailable', false]);
    }
    for (const status of [413, 507]) expect(statusError(status, 'PUT').code).toBe('insufficient_storage');
    for (const code of ['DEPTH_ZERO_SELF_SIGNED_CERT', 'CERT_HAS_EXPIRED', 'ERR_TLS_CERT_ALTNAME_INVALID']) {
      expect(isRefusal(connectionError(systemError(code)))).toBe(true);
    }
  });

  test('all that keeps a connection from standing reads the same', () => {
    const codes = ['ECONNREFUSED', 'EHOSTUNREACH', 'ENOTFOUND', 'ETIMEDOUT', 'ECONNRESET', 'HPE_INVALID_CONSTANT'];
    const sentences = codes.map((code) => connectionError(systemError(code)).detail);
    expect(new Set(sentences).size).toBe(1);
  });

  test('the log sees what happened, and nothing of what was sent', () => {
    const seen = inspect(
      connectionError(systemError('HPE_X', { rawPacket: Buffer.from('secret'), headers: 'secret' })),
    );
    expect(seen).toContain('HPE_X: what happened');
    expect(seen).not.toMatch(/secret|rawPacket/);
  });

  test('an error of ours stays as it is', () => {
    const own = new AppError('forbidden', 'This address is denied.');
    expect(connectionError(own)).toBe(own);
  });
});
