import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { AppError } from '@stowage/common/errors';
import { WebdavPaths } from './webdav-paths.ts';

const segment = fc
  .string({ unit: fc.integer({ min: 0x20, max: 0x7e }).map((code) => String.fromCharCode(code)), minLength: 1 })
  .filter((text) => !/[/\\]/.test(text) && text !== '.' && text !== '..');
const hex = (text: string): string =>
  [...text].map((letter) => `%${letter.charCodeAt(0).toString(16).padStart(2, '0')}`).join('');

describe('paths on a WebDAV server', () => {
  test('a name is found again in what was made of it, however it is escaped', () => {
    fc.assert(
      fc.property(fc.array(segment, { maxLength: 4 }), segment, (root, name) => {
        const paths = new WebdavPaths('http://localhost:1/a%20b/', root.join('/'));
        const folder = paths.folder('blobs');
        expect(folder).toMatch(/^\/[!-~]*\/$/);
        expect(paths.nameOf(folder, paths.file('blobs', name))).toBe(name);
        expect(paths.nameOf(folder, folder)).toBe('');
        if (!/^\.{1,2}$/.test(name)) expect(paths.nameOf(folder, `${folder}${hex(name)}`)).toBe(name);
        expect(() => paths.nameOf(folder, paths.file('tmp', name))).toThrow(AppError);
        expect(() => paths.nameOf(folder, `http://localhost:2${folder}`)).toThrow(AppError);
      }),
    );
  });

  test('no href ever names anything outside of the folder that was asked for', () => {
    const paths = new WebdavPaths('http://localhost:1/dav', '/root');
    const odd = fc.array(
      fc.constantFrom('/', '..', '%2e', '.', '\\', 'dav', 'root', 'x', '//h', '?', '#', '%', 'http:'),
    );
    fc.assert(
      fc.property(odd, (parts) => {
        const href = parts.join('');
        try {
          paths.nameOf(paths.folder('x'), href);
        } catch (error) {
          expect(error).toBeInstanceOf(AppError);
          return;
        }
        expect(new URL(href, 'http://localhost:1/dav/root/x/').pathname).toMatch(/^\/+dav\/+root\/+x(\/|$)/);
      }),
    );
  });

  test('levels are made from the top', () => {
    const paths = new WebdavPaths('https://localhost/dav', '/a b/c/');
    expect(paths.rootLevels()).toEqual(['/dav/a%20b/', '/dav/a%20b/c/']);
    expect(paths.address(paths.file('x'))).toBe('https://localhost/dav/a%20b/c/x');
    expect(new WebdavPaths('https://localhost', '/').rootLevels()).toEqual([]);
  });

  test('places that are none are refused', () => {
    for (const url of [
      '',
      'x',
      'ftp://h/',
      'http://u:p@h/',
      'http://u@h/',
      'http://h/?x',
      'http://h/#x',
      'file:///x',
    ]) {
      expect(() => new WebdavPaths(url, '/root')).toThrow(AppError);
    }
    for (const root of ['..', '/a/../b', '/.', 'a/./b', '/ü', '/a\\..\\b', '/a\n', '/a\0']) {
      expect(() => new WebdavPaths('http://h/', root)).toThrow(AppError);
    }
  });
});
