import { readFile } from 'node:fs/promises';
import { serviceNames } from '@stowage/common/rpc/connections';
import type { System } from './system.ts';

/** One line of what a scraper reads. */
export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** What a scraper reads from each management port of a system that was started with STOWAGE_METRICS. */
export async function scrape(system: System): Promise<Sample[]> {
  const names = system.mode === 'standalone' ? ['standalone'] : serviceNames;
  const texts = await Promise.all(names.map(async (name) => scrapePort(await managementPortOf(system, name))));
  return texts.flatMap(parse);
}

/** The port stands in the environment of the process: in six the launcher chose it. */
async function managementPortOf(system: System, service: string): Promise<string> {
  const environment = await readFile(`/proc/${await system.pidOf(service)}/environ`, 'utf8');
  const port = /(?:^|\0)STOWAGE_MANAGEMENT_PORT=(\d+)/.exec(environment)?.[1];
  if (port === undefined) throw new Error(`${service} has no management port`);
  return port;
}

async function scrapePort(port: string): Promise<string> {
  const answer = await fetch(`http://127.0.0.1:${port}/metrics`);
  if (answer.status !== 200) throw new Error(`metrics answered ${answer.status}`);
  return answer.text();
}

function parse(text: string): Sample[] {
  return [...text.matchAll(/^([a-z_]\w*)(?:\{(.*)\})? (\S+)$/gm)].map(([, name = '', labels = '', value]) => ({
    name,
    labels: Object.fromEntries([...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, text]) => [key, text])),
    value: Number(value),
  }));
}
