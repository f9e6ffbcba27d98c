import { afterAll, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  byteSize,
  byteSizeWithin,
  duration,
  integer,
  list,
  oneOf,
  origin,
  positiveDuration,
  readSettings,
  setting,
  text,
  timeout,
  waitingTime,
} from './settings.ts';

const group = {
  port: setting('STOWAGE_PORT', 'a port', integer(0, 65_535), { fallback: '8080' }),
  ttl: setting('STOWAGE_TTL', 'a time', duration, { fallback: '1h' }),
  password: setting<string | null>('STOWAGE_PASSWORD', 'a secret', text, { absent: null, secret: true }),
  database: setting('STOWAGE_DATABASE_URL', 'needed', text),
};

const folders: string[] = [];

afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true });
});

describe('settings', () => {
  test('have defaults, and an empty variable counts as unset', () => {
    const { own } = readSettings({ own: group }, { STOWAGE_DATABASE_URL: 'x', STOWAGE_PORT: '' });
    expect(own).toEqual({ port: 8080, ttl: 3_600_000, password: null, database: 'x' });
  });

  test('all mistakes of all groups come in one message', () => {
    const other = { level: setting('STOWAGE_LOG_LEVEL', 'a word', oneOf('info', 'warn'), { fallback: 'info' }) };
    const wrong = { STOWAGE_PORT: '99999', STOWAGE_TTL: 'soon', STOWAGE_LOG_LEVEL: 'loud' };
    expect(() => readSettings({ group, other }, wrong)).toThrow(
      /STOWAGE_PORT must be[^]*STOWAGE_TTL must be[^]*STOWAGE_DATABASE_URL must be set[^]*STOWAGE_LOG_LEVEL must be/,
    );
  });

  test('a secret can come from a file, and not from two places', () => {
    const folder = mkdtempSync(join(tmpdir(), 'stowage-settings-'));
    folders.push(folder);
    const file = join(folder, 'password');
    writeFileSync(file, 'from a file\n');
    const base = { STOWAGE_DATABASE_URL: 'x', STOWAGE_PASSWORD_FILE: file };
    expect(readSettings({ group }, base).group.password).toBe('from a file');
    expect(() => readSettings({ group }, { ...base, STOWAGE_PASSWORD: 'y' })).toThrow(/set twice/);
    expect(() => readSettings({ group }, { ...base, STOWAGE_PASSWORD_FILE: '/nowhere' })).toThrow(/can't be read/);
  });

  test('times and sizes carry their units', () => {
    fc.assert(fc.property(fc.nat(999_999), (n) => duration(`${n}s`) === n * 1000 && byteSize(`${n}KiB`) === n * 1024));
    for (const wrong of ['', '5', '-5s', '5 s', '1w', 's']) expect(() => duration(wrong)).toThrow(/must be a time/);
    for (const wrong of ['', 'KiB', '-1', '1KB', '99999999TiB'])
      expect(() => byteSize(wrong)).toThrow(/must be a size/);
  });

  test('times are within what a limit, a timer and a date can be', () => {
    expect([duration('0s'), waitingTime('0ms'), positiveDuration('1ms'), timeout('24d')]).toEqual([
      0, 0, 1, 2_073_600_000,
    ]);
    for (const parse of [positiveDuration, timeout]) expect(() => parse('0s')).toThrow(/must be a time above 0/);
    for (const parse of [waitingTime, timeout]) expect(() => parse('25d')).toThrow(/of 24d at most/);
    for (const parse of [duration, positiveDuration]) expect(() => parse('36501d')).toThrow(/must be a time/);
    expect(() => byteSizeWithin(1, 1024)('0')).toThrow(/from 1 to 1024 bytes/);
  });

  test('an origin is scheme, host and port alone', () => {
    expect(origin('https://files.example.com')).toBe('https://files.example.com');
    for (const wrong of [
      'files.example.com',
      'https://a/b',
      'ftp://a',
      'https://u@a',
      'https://:p@a',
      'https://a?x',
      'https://*.a',
    ])
      expect(() => origin(wrong)).toThrow();
    expect(() => origin('https://user:secret@a')).toThrow(/^((?!secret).)*$/s);
    expect(list(origin)('https://a, https://b')).toEqual(['https://a', 'https://b']);
  });
});
