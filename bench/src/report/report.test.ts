import { describe, expect, test } from '@jest/globals';
import type { Row } from '../measure/row.ts';
import { summarise } from '../measure/summary.ts';
import { compareResults } from './compare.ts';
import { printReport } from './report.ts';
import type { Results } from './results.ts';
import { judge } from './targets.ts';

function row(workload: string, contender: string, value: number, details: Record<string, number> = {}): Row {
  const summaries = Object.entries(details).map(([name, detail]) => [name, summarise([detail])]);
  return { workload, contender, unit: 'MiB/s', value: summarise([value]), details: Object.fromEntries(summaries) };
}

function results(rows: Row[]): Results {
  const machine = {
    date: '2026-01-02T03:04:05.000Z',
    commit: 'abc',
    processor: 'some',
    cores: 2,
    shaExtensions: true,
    memoryGiB: 4,
    kernel: '6',
    fileSystem: 'ext4',
    node: 'v24',
    postgres: '18',
  };
  return { machine, rounds: 5, minutes: 1, titles: {}, failures: {}, rows };
}

test('the middle of readings is told with the least and the most', () => {
  expect(summarise([3, 1, 2])).toEqual({ median: 2, min: 1, max: 3 });
  expect(summarise([4, 1, 2, 3])).toEqual({ median: 2.5, min: 1, max: 4 });
});

test('a copy and a walk of all blobs are held against their aims', () => {
  const rows = [row('W8', 'one', 300), row('W8', 'bare PUTs', 600), row('W9', 'one', 7_000, { 'RSS growth MiB': 20 })];
  expect(judge(rows).map(({ workload, value, passes }) => [workload, value, passes])).toEqual([
    ['W8', 0.5, false],
    ['W9', 7_000, true],
    ['W9', 20, true],
  ]);
});

describe('a target', () => {
  const verdictOf = (rows: Row[], aim: string) => judge(rows).find((verdict) => verdict.aim === aim);

  test('is met or missed by the ratio to its baseline in the same run', () => {
    const aim = '≥ 0.9 of node-shas';
    expect(verdictOf([row('W1', 'one', 95), row('W1', 'node-shas', 100)], aim)).toMatchObject({ passes: true });
    const missed = verdictOf([row('W1', 'one', 80), row('W1', 'node-shas', 100)], aim);
    expect(missed).toMatchObject({ value: 0.8, passes: false });
  });

  test('that was not measured does not pass', () => {
    expect(verdictOf([row('W1', 'one', 95)], '≥ 0.9 of node-shas')).toMatchObject({ value: null, passes: false });
    expect(judge([])).toEqual([]);
  });

  test('for the growth of pages sees one order that grows among others that do not', () => {
    const curve = {
      '10000 name asc first': summarise([10]),
      '100000 name asc first': summarise([10]),
      '10000 size desc first': summarise([10]),
      '100000 size desc first': summarise([40]),
    };
    const rows = [{ ...row('W5-growth', 'one', 10), curve }];
    const verdict = judge(rows).find(({ aim }) => aim.startsWith('first page of 100,000'));
    expect(verdict).toMatchObject({ value: 2, passes: false });
  });
});

test('a comparison takes out how the machine drifted', () => {
  const before = results([row('W1', 'one', 100), row('W1', 'node-shas', 100)]);
  const after = results([row('W1', 'one', 150), row('W1', 'node-shas', 50), row('W9', 'one', 1)]);
  const lines = compareResults(before, after).split('\n');
  expect(lines.find((line) => line.includes('| one |'))).toContain('| 1.5 | 3 |');
  expect(lines.find((line) => line.includes('node-shas'))).toContain('| 0.5 |  |');
  expect(lines.join()).not.toContain('W9');
});

test('a report says where and with what it was made, and what falls short', () => {
  const report = printReport(results([row('W1', 'one', 80), row('W1', 'node-shas', 100)]));
  expect(report).toContain('2 cores of some (with SHA extensions)');
  expect(report).toContain('| W1 | ≥ 0.9 of node-shas | 0.8 | **falls short** |');
});
