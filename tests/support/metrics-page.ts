import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

const repository = join(import.meta.dirname, '../..');

/** A row of deploy/metrics.md. */
export interface DocumentedMetric {
  name: string;
  type: string;
  labels: string[];
}

/** The metrics that deploy/metrics.md promises. */
export async function documentedMetrics(): Promise<DocumentedMetric[]> {
  const page = await readFile(join(repository, 'deploy/metrics.md'), 'utf8');
  return [...page.matchAll(/^\| +`(stowage_\w+)` +\| +(\w+) +\|([^|]*)\|/gm)].map(
    ([, name = '', type = '', labels = '']) => ({
      name,
      type,
      labels: [...labels.matchAll(/`(\w+)`/g)].map(([, label = '']) => label).sort(),
    }),
  );
}

/** The metric that a line of a scrape, or a selector of a query, belongs to: a histogram has three. */
export function metricOf(name: string, documented: readonly DocumentedMetric[]): string {
  const base = name.replace(/_(bucket|sum|count)$/, '');
  return documented.some((metric) => metric.name === base && metric.type === 'histogram') ? base : name;
}
