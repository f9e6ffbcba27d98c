import type { Load } from '../driver/jobs.ts';
import type { Usage } from './processes.ts';
import { summarise } from './summary.ts';
import type { Summary } from './summary.ts';

/** In what a workload is told. */
export type Unit = 'MiB/s' | 'per s' | 'ms';

/** All rounds of one contender at one workload. */
export interface Row {
  workload: string;
  contender: string;
  unit: Unit;
  value: Summary;
  /** What else is known of it, by name: quantiles, CPU, memory, parts of the time. */
  details: Record<string, Summary>;
  /** Medians in ms of what was asked for in turn, by label. */
  curve?: Record<string, Summary>;
}

/** One round. */
export interface Reading {
  load: Load;
  /** Of each process: CPU for this round, memory at its end. */
  usage: readonly Usage[];
}

const mebibyte = 2 ** 20;

/** The name of the detail that holds all CPU time per GiB or per operation. */
export function cpuDetail(unit: Unit): string {
  return unit === 'MiB/s' ? 'CPU s/GiB' : 'CPU µs/op';
}

/** Sums the rounds up. */
export function rowOf(workload: string, unit: Unit, contender: string, readings: readonly Reading[]): Row {
  const of = (pick: (reading: Reading) => number): Summary => summarise(readings.map(pick));
  const perWork = ({ bytes, operations }: Load, seconds: number): number =>
    unit === 'MiB/s' ? seconds / (bytes / 2 ** 30) : (seconds * 1e6) / operations;
  const cpu = (name: string | null) => of(({ load, usage }) => perWork(load, sum(usage, name, 'cpuSeconds')));
  const details: Record<string, Summary> = {};
  if (unit === 'per s') {
    details['p50 ms'] = of(({ load }) => load.p50Ms);
    details['p99 ms'] = of(({ load }) => load.p99Ms);
  }
  const [first] = readings;
  const names = [...new Set(first?.usage.map(({ name }) => name))];
  details[cpuDetail(unit)] = cpu(null);
  for (const name of names.length > 1 ? names : [])
    details[name === 'PostgreSQL' ? 'of it PostgreSQL' : `CPU of ${name}`] = cpu(name);
  details['peak RSS MiB'] = of(({ usage }) => sum(usage, null, 'peakBytes') / mebibyte);
  for (const name of names.length > 2 ? names.filter((name) => name !== 'PostgreSQL') : [])
    details[`RSS of ${name}`] = of(({ usage }) => sum(usage, name, 'peakBytes') / mebibyte);
  details['driver cores'] = of(({ load }) => load.driverCpuSeconds / load.seconds);
  for (const part of Object.keys(first?.load.parts ?? {}))
    details[`${part} s`] = of(({ load }) => load.parts[part] ?? 0);
  const row = { workload, contender, unit, value: of(({ load }) => valueOf(unit, load)), details };
  const labels = Object.keys(first?.load.medians ?? {});
  if (labels.length === 0) return row;
  return {
    ...row,
    curve: Object.fromEntries(labels.map((label) => [label, of(({ load }) => load.medians[label] ?? 0)])),
  };
}

function sum(usage: readonly Usage[], name: string | null, what: 'cpuSeconds' | 'peakBytes'): number {
  return usage.filter((one) => name === null || one.name === name).reduce((total, one) => total + one[what], 0);
}

function valueOf(unit: Unit, load: Load): number {
  switch (unit) {
    case 'MiB/s':
      return load.bytes / mebibyte / load.seconds;
    case 'per s':
      return load.operations / load.seconds;
    case 'ms':
      return load.p50Ms;
  }
}
