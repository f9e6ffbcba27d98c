import type { Load } from '../driver/jobs.ts';
import { cpuTimeOf, forgetPeaks, residentBytesOf } from './processes.ts';
import type { Processes } from './processes.ts';
import { summarise } from './summary.ts';
import type { Summary } from './summary.ts';

/** Something that does the same work as others, and is measured beside them. */
export interface Contender {
  name: string;
  processes: Processes;
  /** Does the work once; `round` is -1 to warm up. */
  run(round: number): Promise<Load>;
  /** Clears away what a round left; not timed. */
  after?(load: Load): Promise<void>;
}

/** In what a workload is told. */
export type Unit = 'MiB/s' | 'per s' | 'ms';

/** All rounds of a contender. */
export interface Row {
  workload: string;
  contender: string;
  unit: Unit;
  value: Summary;
  p50Ms: Summary;
  p99Ms: Summary;
  /** CPU s per GiB where the unit is MiB/s, else µs per operation: of its Node processes, and of PostgreSQL. */
  cpuNode: Summary;
  cpuPostgres: Summary;
  /** Of its Node processes, in MiB. */
  peakRss: Summary;
  /** The share of one core that the driver used. */
  driverCores: Summary;
  parts: Record<string, Summary>;
}

interface Reading {
  load: Load;
  cpuNode: number;
  cpuPostgres: number;
  peakRss: number;
}

const mebibyte = 2 ** 20;

/** Runs all contenders in turn, round after round, so that what the machine does meanwhile meets all of them alike. */
export async function alternate(
  workload: string,
  unit: Unit,
  contenders: readonly Contender[],
  rounds: number,
): Promise<Row[]> {
  const readings = new Map<Contender, Reading[]>(contenders.map((contender) => [contender, []]));
  for (const contender of contenders) await contender.after?.(await contender.run(-1));
  for (let round = 0; round < rounds; round++) {
    for (const contender of contenders) {
      readings.get(contender)?.push(await measure(contender, round));
    }
  }
  return [...readings].map(([contender, all]) => rowOf(workload, unit, contender.name, all));
}

async function measure(contender: Contender, round: number): Promise<Reading> {
  forgetPeaks(contender.processes);
  const before = cpuTimeOf(contender.processes);
  const load = await contender.run(round);
  const after = cpuTimeOf(contender.processes);
  const peakRss = residentBytesOf(contender.processes).peak / mebibyte;
  await contender.after?.(load);
  return { load, cpuNode: after.node - before.node, cpuPostgres: after.postgres - before.postgres, peakRss };
}

function rowOf(workload: string, unit: Unit, contender: string, readings: readonly Reading[]): Row {
  const of = (pick: (reading: Reading) => number): Summary => summarise(readings.map(pick));
  const perWork = (load: Load, seconds: number): number =>
    unit === 'MiB/s' ? seconds / (load.bytes / 2 ** 30) : (seconds * 1e6) / load.operations;
  const partNames = Object.keys(readings[0]?.load.parts ?? {});
  return {
    workload,
    contender,
    unit,
    value: of(({ load }) => valueOf(unit, load)),
    p50Ms: of(({ load }) => load.p50Ms),
    p99Ms: of(({ load }) => load.p99Ms),
    cpuNode: of(({ load, cpuNode }) => perWork(load, cpuNode)),
    cpuPostgres: of(({ load, cpuPostgres }) => perWork(load, cpuPostgres)),
    peakRss: of(({ peakRss }) => peakRss),
    driverCores: of(({ load }) => load.driverCpuSeconds / load.seconds),
    parts: Object.fromEntries(partNames.map((name) => [name, of(({ load }) => load.parts[name] ?? 0)])),
  };
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
