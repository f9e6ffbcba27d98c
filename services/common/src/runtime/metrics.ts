import { metrics } from '@opentelemetry/api';
import type { Attributes, BatchObservableCallback, Counter, Histogram, Meter, Observable } from '@opentelemetry/api';
import type { Logger } from './logger.ts';
import { withinWait } from '../within-wait.ts';

const meter = (): Meter => metrics.getMeter('stowage');

/** A histogram of seconds with these bounds. */
export function durationHistogram(name: string, description: string, boundaries: number[]): Histogram {
  return meter().createHistogram(name, { unit: 's', description, advice: { explicitBucketBoundaries: boundaries } });
}

/** A counter that shows 0 from the start for each of `series`, so that a first event is a change that can be seen. */
export function counter<A extends Attributes>(name: string, description: string, series: readonly A[]): Counter<A> {
  const made = meter().createCounter<A>(name, { description });
  for (const attributes of series) made.add(0, attributes);
  return made;
}

/** A number that is asked for at each scrape. */
export function gauge(name: string, description: string): Observable {
  return meter().createObservableGauge(name, { description });
}

/** Has `observe` tell the values of gauges at each scrape. Gives what ends that. */
export function observeAll(gauges: Observable[], observe: BatchObservableCallback): () => void {
  meter().addBatchObservableCallback(observe, gauges);
  return () => meter().removeBatchObservableCallback(observe, gauges);
}

/** One value of a gauge. */
export type Observation = [gauge: Observable, value: number, attributes?: Attributes];

export interface LookSettings {
  /** No look is taken while the last one is not older than this. */
  everyMs: number;
  /** After a look comes a rest of so many times what it took, so that a costly one takes a known part of the time. */
  restFactor?: number;
  /** What is older is not told any more: then something is wrong, and a number would hide it. */
  staleMs: number;
  logger: Logger;
  /** How long a scrape waits for a look; then it tells what the last one found. */
  waitMs?: number;
}

const scrapeWaitMs = 2_000;

/**
 * Reports gauges by looks at the database that are taken only while somebody scrapes, and seldom enough to cost nothing.
 * A database that is slow or down delays no scrape, which has other things to tell then.
 */
export function observeLooks(
  gauges: Observable[],
  settings: LookSettings,
  look: () => Promise<Observation[]>,
): () => void {
  const found = new LastLook(settings, look);
  return observeAll(gauges, async (result) => {
    for (const [observable, value, attributes] of await found.get()) result.observe(observable, value, attributes);
  });
}

class LastLook {
  readonly #settings: LookSettings;
  readonly #look: () => Promise<Observation[]>;
  #found: Observation[] = [];
  #foundAt = Number.NEGATIVE_INFINITY;
  #nextAt = 0;
  #looking: Promise<void> | null = null;

  constructor(settings: LookSettings, look: () => Promise<Observation[]>) {
    this.#settings = settings;
    this.#look = look;
  }

  async get(): Promise<Observation[]> {
    if (performance.now() >= this.#nextAt) this.#looking ??= this.#take().finally(() => (this.#looking = null));
    if (this.#looking)
      await withinWait(
        this.#looking.then(() => true),
        this.#settings.waitMs ?? scrapeWaitMs,
      );
    return performance.now() - this.#foundAt < this.#settings.staleMs ? this.#found : [];
  }

  async #take(): Promise<void> {
    const startedAt = performance.now();
    try {
      this.#found = await this.#look();
      this.#foundAt = performance.now();
    } catch (error) {
      this.#settings.logger.warn({ err: error }, 'Metrics could not be read from the database.');
    }
    const { everyMs, restFactor = 0, staleMs } = this.#settings;
    // Well before what was found is too old to be told.
    const restMs = Math.min(restFactor * (performance.now() - startedAt), staleMs / 2);
    this.#nextAt = performance.now() + Math.max(everyMs, restMs);
  }
}
