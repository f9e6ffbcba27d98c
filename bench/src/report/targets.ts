import { cpuDetail } from '../measure/row.ts';
import type { Row } from '../measure/row.ts';
import { meanOf } from '../measure/summary.ts';

/** What was aimed at, and what came out. */
export interface Verdict {
  workload: string;
  aim: string;
  /** Null where the rows for it were not measured. */
  value: number | null;
  passes: boolean;
}

interface Target {
  workload: string;
  aim: string;
  atLeast?: number;
  atMost?: number;
  of(rows: Rows): number | null;
}

const targets: readonly Target[] = [
  {
    workload: 'driver',
    aim: 'fastest requests measured ≤ 0.7 of what the driver can do',
    atMost: 0.7,
    of: (rows) => {
      const fastest = rows.served().filter(({ unit }) => unit === 'per s');
      return fastest.length === 0
        ? null
        : ratio(Math.max(...fastest.map(({ value }) => value.median)), rows.value('driver', 'empty server'));
    },
  },
  {
    workload: 'driver',
    aim: 'the driver takes ≤ 0.7 of a core in every load',
    atMost: 0.7,
    of: (rows) => {
      const shares = rows.served().flatMap(({ details }) => details['driver cores']?.median ?? []);
      return shares.length === 0 ? null : Math.max(...shares);
    },
  },
  {
    workload: 'W1',
    aim: '≥ 0.9 of node-shas',
    atLeast: 0.9,
    of: (rows) => ratio(rows.value('W1', 'one'), rows.value('W1', 'node-shas')),
  },
  {
    workload: 'W1',
    aim: 'CPU per GiB ≤ 1.15 of node-shas',
    atMost: 1.15,
    of: (rows) =>
      ratio(rows.detail('W1', 'one', cpuDetail('MiB/s')), rows.detail('W1', 'node-shas', cpuDetail('MiB/s'))),
  },
  { workload: 'W1', aim: 'RSS ≤ 200 MiB', atMost: 200, of: (rows) => rows.detail('W1', 'one', 'peak RSS MiB') },
  {
    workload: 'W1',
    aim: 'six processes: ≥ 0.5 of one',
    atLeast: 0.5,
    of: (rows) => ratio(rows.value('W1', 'six'), rows.value('W1', 'one')),
  },
  {
    workload: 'W1',
    aim: 'six processes: each of the two hops ≤ 1.0 CPU s/GiB more than one',
    atMost: 1,
    of: (rows) => {
      const [six, one] = ['six', 'one'].map((mode) => rows.detail('W1', mode, cpuDetail('MiB/s')));
      return six === null || six === undefined || one === null || one === undefined ? null : (six - one) / 2;
    },
  },
  {
    workload: 'W1b',
    aim: '≥ 0.95 of one PATCH',
    atLeast: 0.95,
    of: (rows) => ratio(rows.value('W1b', 'one'), rows.value('W1b', 'one, one PATCH')),
  },
  {
    workload: 'W2',
    aim: '≥ 0.25 of node-sha',
    atLeast: 0.25,
    of: (rows) => ratio(rows.value('W2', 'one'), rows.value('W2', 'node-sha')),
  },
  {
    workload: 'W2',
    aim: 'CPU ≤ 1,200 µs a file, PostgreSQL included',
    atMost: 1_200,
    of: (rows) => rows.detail('W2', 'one', cpuDetail('per s')),
  },
  batch('W3a', 0.8),
  {
    workload: 'W3a',
    aim: '≤ 1.25 CPU s/GiB',
    atMost: 1.25,
    of: (rows) => rows.detail('W3a', 'one', cpuDetail('MiB/s')),
  },
  batch('W3b', 0.8),
  batch('W3c', 0.75),
  batch('W4', 0.4),
  {
    workload: 'W4',
    aim: 'p99 ≤ 5 of p50',
    atMost: 5,
    of: (rows) => ratio(rows.detail('W4', 'one', 'p99 ms'), rows.detail('W4', 'one', 'p50 ms')),
  },
  {
    workload: 'W5-stat',
    aim: '≥ 0.4 of a point SELECT through bare Node',
    atLeast: 0.4,
    of: (rows) => ratio(rows.value('W5-stat', 'one'), rows.value('W5-stat', 'select, pooled')),
  },
  growth('first page of 100,000', ['100000 first']),
  growth('middle page of 10,000 and 100,000', ['10000 middle', '100000 middle']),
  growth('any page of 1,000,000', ['1000000 first', '1000000 middle', '1000000 last']),
  change('rename'),
  change('move'),
  likeTen('rename'),
  likeTen('move'),
  {
    workload: 'W7',
    aim: 'second start ≤ 1,500 ms',
    atMost: 1_500,
    of: (rows) => rows.value('W7', 'one, second start'),
  },
  {
    workload: 'W7',
    aim: 'idle RSS ≤ 150 MiB',
    atMost: 150,
    of: (rows) => rows.detail('W7', 'one, second start', 'idle RSS MiB'),
  },
  {
    workload: 'W8',
    aim: '≥ 0.6 of 16 plain PUTs at a time',
    atLeast: 0.6,
    of: (rows) => ratio(rows.value('W8', 'one'), rows.value('W8', 'bare PUTs')),
  },
  {
    workload: 'W9',
    aim: '1,000,000 blobs in ≤ 60,000 ms',
    atMost: 60_000,
    of: (rows) => rows.value('W9', 'one'),
  },
  {
    workload: 'W9',
    aim: 'RSS growth ≤ 100 MiB, since before the first run',
    atMost: 100,
    of: (rows) => rows.detail('W9', 'one', 'RSS growth MiB'),
  },
  ...metadata('W10', ['one', 'one, gzip'], 60_000),
  ...metadata('W11', ['one', 'one, gzip'], 180_000),
  ...metadata('W12', ['one', 'one, empty'], 180_000),
  ...metadata('W13', ['one'], 180_000),
  ...metadata('W14', ['one'], 60_000),
];

/** Judges a run by the targets whose workloads are in it. */
export function judge(all: readonly Row[]): Verdict[] {
  const rows = new Rows(all);
  return targets
    .filter(({ workload }) => all.some((row) => row.workload === workload))
    .map(({ workload, aim, atLeast = -Infinity, atMost = Infinity, of }) => {
      const value = of(rows);
      return { workload, aim, value, passes: value !== null && value >= atLeast && value <= atMost };
    });
}

class Rows {
  readonly #rows: ReadonlyMap<string, Row>;

  constructor(rows: readonly Row[]) {
    this.#rows = new Map(rows.map((row) => [`${row.workload}/${row.contender}`, row]));
  }

  value(workload: string, contender: string): number | null {
    return this.#rows.get(`${workload}/${contender}`)?.value.median ?? null;
  }

  /** What came from a server; a bare statement is as fast as the driver can send it. */
  served(): Row[] {
    const apart = (row: Row): boolean => row.workload.startsWith('driver') || row.contender.startsWith('bare ');
    return [...this.#rows.values()].filter((row) => !apart(row));
  }

  detail(workload: string, contender: string, name: string): number | null {
    return this.#rows.get(`${workload}/${contender}`)?.details[name]?.median ?? null;
  }

  /** Labels with their medians. */
  curve(workload: string, contender: string): Map<string, number> {
    const curve = this.#rows.get(`${workload}/${contender}`)?.curve ?? {};
    return new Map(Object.entries(curve).map(([label, { median }]) => [label, median]));
  }
}

function ratio(value: number | null, base: number | null): number | null {
  return value === null || base === null || base === 0 ? null : value / base;
}

function batch(workload: string, atLeast: number): Target {
  return {
    workload,
    aim: `≥ ${atLeast} of node-batch`,
    atLeast,
    of: (rows) => ratio(rows.value(workload, 'one'), rows.value(workload, 'node-batch')),
  };
}

/**
 * The mean over all orders: one order that reads the whole directory moves it far, the noise of one point does not.
 * `pages` are sizes and places.
 */
function growth(what: string, pages: readonly string[]): Target {
  return {
    workload: 'W5-growth',
    aim: `${what}, mean of all orders: ≤ 1.1 of the first page of 10,000`,
    atMost: 1.1,
    of: (rows) => {
      const curve = rows.curve('W5-growth', 'one');
      const ratios = [...curve].flatMap(([label, ms]) => {
        const [size, sort, order, place] = label.split(' ');
        if (!pages.includes(`${size} ${place}`)) return [];
        return ratio(ms, curve.get(`10000 ${sort} ${order} first`) ?? null) ?? [];
      });
      return meanOf(ratios);
    },
  };
}

/** What is done with all metadata of a million files. */
function metadata(workload: string, contenders: readonly string[], limitMs: number): Target[] {
  return contenders.flatMap((contender) => [
    {
      workload,
      aim: `${contender}: ≤ ${limitMs / 1_000} s`,
      atMost: limitMs,
      of: (rows: Rows) => rows.value(workload, contender),
    },
    {
      workload,
      aim: `${contender}: RSS ≤ 400 MiB`,
      atMost: 400,
      of: (rows: Rows) => rows.detail(workload, contender, 'peak RSS MiB'),
    },
  ]);
}

function change(verb: string): Target {
  return {
    workload: 'W6',
    aim: `${verb} over 100,000 descendants ≤ 10 ms`,
    atMost: 10,
    of: (rows) => rows.curve('W6', 'one').get(`${verb} 100000`) ?? null,
  };
}

function likeTen(verb: string): Target {
  return {
    workload: 'W6',
    aim: `${verb} over 100,000 descendants ≤ 1.1 of over 10`,
    atMost: 1.1,
    of: (rows) => {
      const curve = rows.curve('W6', 'one');
      return ratio(curve.get(`${verb} 100000`) ?? null, curve.get(`${verb} 10`) ?? null);
    },
  };
}
