import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { configFields } from '@stowage/common/backend-config';
import { AppError } from '@stowage/common/errors';
import { backendTypes } from '@stowage/common/backend-config';
import { isMoved, parseConfig } from './parse-config.ts';

const s3 = { endpoint: null, region: 'eu-central-1', bucket: 'team-files' };
const keys = { access_key_id: 'id', secret_access_key: 'key' };
const allKeys = [...new Set(backendTypes.flatMap((type) => Object.keys(configFields[type])))];

describe('a configuration', () => {
  test('never has a secret among its public values, nor a value of it in a refusal, whatever is sent', () => {
    const key = fc.oneof(fc.constantFrom(...allKeys), fc.string());
    const value = fc.oneof(
      fc.string().map((text) => `canary-${text}`),
      fc.constantFrom(null, true, 1, '', 'canary', 'http://canary.example', '/canary'),
      fc.constant({ inner: 'canary' }),
    );
    const given = fc.array(fc.tuple(key, value)).map((entries) => Object.fromEntries(entries));
    fc.assert(
      fc.property(fc.constantFrom(...backendTypes), given, fc.boolean(), (type, config, isNew) => {
        try {
          const parsed = parseConfig(type, config, isNew ? null : {});
          const secretNames = Object.keys(configFields[type]).filter((name) => configFields[type][name]?.secret);
          for (const name of Object.keys(parsed.config)) {
            expect(secretNames).not.toContain(name);
            expect(Object.keys(configFields[type])).toContain(name);
          }
          for (const name of Object.keys(parsed.secrets)) expect(secretNames).toContain(name);
        } catch (error) {
          if (!(error instanceof AppError)) throw error;
          expect(error.code).toBe('validation_failed');
          const names = Object.keys(config).join();
          if (!names.includes('canary')) expect(JSON.stringify([error.detail, error.members])).not.toContain('canary');
        }
      }),
      { numRuns: 2_000 },
    );
  });

  test('is merged: what is left out is kept, a secret also where it is null or empty', () => {
    const { config, secrets } = parseConfig('s3', { ...s3, ...keys }, null);
    expect([config, secrets]).toEqual([s3, keys]);
    expect(parseConfig('s3', { access_key_id: null, secret_access_key: '', prefix: 'a' }, config)).toEqual({
      config: { ...s3, prefix: 'a' },
      secrets: {},
      refs: {},
    });
    expect(parseConfig('s3', { session_token: 'token' }, config)).toEqual({
      config: s3,
      secrets: { session_token: 'token' },
      refs: {},
    });
  });

  test('has moved where root, endpoint, bucket, prefix or url differ, and by nothing else', () => {
    expect(isMoved('s3', s3, { ...s3, bucket: 'others' })).toBe(true);
    expect(isMoved('s3', s3, { ...s3, prefix: 'a' })).toBe(true);
    expect(isMoved('s3', s3, { ...s3, endpoint: 'http://host' })).toBe(true);
    expect(isMoved('s3', s3, { region: 'x', bucket: 'team-files', force_path_style: true })).toBe(false);
    expect(isMoved('webdav', { url: 'http://a', username: 'a' }, { url: 'http://a', username: 'b' })).toBe(false);
    expect(isMoved('webdav', { url: 'http://a' }, { url: 'http://b' })).toBe(true);
  });
});
