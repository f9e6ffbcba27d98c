import type { Stowage } from './stowage.ts';

const pollMs = 20;
/** How long a job may take in all. */
const jobLimitMs = 30 * 60_000;

/** Asks the interface as its admin, and gives the body of the answer. Throws where that is no 2xx. */
export async function ask(
  { port, token }: Stowage,
  method: string,
  path: string,
  body?: object,
): Promise<Record<string, unknown>> {
  const answer = await fetch(`http://127.0.0.1:${port}${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, ...(body ? { 'content-type': 'application/json' } : {}) },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path} was answered with ${answer.status}: ${text.slice(0, 2_000)}`);
  return text === '' ? {} : fieldsOf(JSON.parse(text));
}

/** Waits until a job has succeeded, and gives its result. Throws where it failed. */
export async function resultOf(system: Stowage, job: unknown): Promise<Record<string, unknown>> {
  const path = `/api/jobs/${textOf(fieldsOf(job), 'id')}`;
  for (const started = performance.now(); performance.now() - started < jobLimitMs;) {
    const { state, result, error } = await ask(system, 'GET', path);
    if (state === 'succeeded') return fieldsOf(result);
    if (state === 'failed' || state === 'cancelled') throw new Error(`the job ${state}: ${JSON.stringify(error)}`);
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
  throw new Error('the job takes too long');
}

/** Waits until no full reconcile runs, or is about to. */
export async function noReconcile(system: Stowage): Promise<void> {
  const isNear = (job: Record<string, unknown>): boolean => Date.parse(textOf(job, 'run_after')) < Date.now() + 60_000;
  for (const started = performance.now(); performance.now() - started < jobLimitMs;) {
    const [running, pending] = await Promise.all(
      ['running', 'pending'].map((state) => ask(system, 'GET', `/api/jobs?kind=full_reconcile&state=${state}`)),
    );
    const jobs = (page: Record<string, unknown> | undefined): Record<string, unknown>[] =>
      Array.isArray(page?.['items']) ? page['items'].map(fieldsOf) : [];
    if (jobs(running).length === 0 && !jobs(pending).some(isNear)) return;
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
  throw new Error('full reconciles do not come to an end');
}

/** The fields of an object of an answer; none of what is no object. */
export function fieldsOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? Object.fromEntries(Object.entries(value)) : {};
}

/** A field that has to be a text. */
export function textOf(fields: Record<string, unknown>, name: string): string {
  const value = fields[name];
  if (typeof value !== 'string') throw new Error(`there is no text ${name} in ${JSON.stringify(fields)}`);
  return value;
}
