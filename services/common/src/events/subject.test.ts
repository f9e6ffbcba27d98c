import { expect, test } from '@jest/globals';
import { subjectMatches } from './subject.ts';

test.each([
  ['stowage.jobs.>', 'stowage.jobs.verify_blob.failed', true],
  ['stowage.jobs.>', 'stowage.jobs', false],
  ['stowage.>', 'stowage.files.moved', true],
  ['stowage.*.moved', 'stowage.files.moved', true],
  ['stowage.*', 'stowage.files.moved', false],
  ['stowage.files.moved', 'stowage.files.moved', true],
  ['stowage.files.moved', 'stowage.files.renamed', false],
  ['*.*.*', 'stowage.files', false],
])('the filter %s and the subject %s: %s', (filter, subject, matches) => {
  expect(subjectMatches(filter, subject)).toBe(matches);
});
