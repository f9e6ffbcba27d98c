import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { queryBuilder } from '@stowage/common/database/database';
import { newId } from '@stowage/common/ids';
import { noteGlimpse, noteHealth } from './backend-health.ts';
import type { Finding, Weight } from './backend-health.ts';
import { findBackend } from './backend-row.ts';
import type { BackendRow, Tables } from './tables.ts';
import { startTestRegistry } from './test-registry.ts';
import type { TestRegistry } from './test-registry.ts';

const good: Finding = { fault: null, warning: null, latencyMs: 1 };
const bad: Finding = { ...good, fault: { step: 'write', detail: 'The backend is away.', certain: false } };
const refused: Finding = { ...good, fault: { step: 'open', detail: 'The password is wrong.', certain: true } };
const unmarked: Finding = { ...good, fault: { step: 'marker', detail: 'No marker.', certain: true } };

let registry: TestRegistry;
let id: string;

beforeAll(async () => {
  registry = await startTestRegistry();
});
afterAll(() => registry.close());
beforeEach(async () => {
  await registry.reset();
  id = newId();
  const row = { id, name: 'some', type: 'webdav', config: {}, marked: true } as const;
  await db().insertInto('registry.backends').values(row).execute();
});

const db = () => queryBuilder<Tables>({ pool: registry.admin });
const row = (): Promise<BackendRow> => findBackend(db(), id);

async function statuses(findings: readonly Finding[], weight: Weight = 'series'): Promise<string[]> {
  const found: string[] = [];
  for (const finding of findings) {
    await noteHealth(db(), await row(), finding, weight);
    found.push((await row()).health_status);
  }
  return found;
}

test('what a look at the place before showed is not noted for the new one', async () => {
  const before = await row();
  await registry.admin.query(`update registry.backends set config = '{"url": "http://new"}' where id = $1`, [id]);
  expect(await noteHealth(db(), before, refused, 'decides')).toBe(false);
  expect((await row()).health_status).toBe('unknown');
  const other = await row();
  await registry.admin.query('update registry.backends set secrets_version = secrets_version + 1 where id = $1', [id]);
  expect(await noteHealth(db(), other, refused, 'decides')).toBe(false);
  expect(await noteHealth(db(), await row(), good, 'decides')).toBe(true);
  expect((await row()).health_status).toBe('healthy');
});

describe('a series of checks', () => {
  test('makes a backend unhealthy at the third failure in a row, and healthy at the second success', async () => {
    expect(await statuses([good, bad, bad, good, bad, bad, bad])).toEqual([
      'healthy',
      'healthy',
      'healthy',
      'healthy',
      'healthy',
      'healthy',
      'unhealthy',
    ]);
    expect(await statuses([good, bad, good, good])).toEqual(['unhealthy', 'unhealthy', 'unhealthy', 'healthy']);
  });

  test('makes it unhealthy at once for what one look is enough to be sure of', async () => {
    expect(await statuses([good, refused])).toEqual(['healthy', 'unhealthy']);
    expect(await statuses([good, good, unmarked])).toEqual(['unhealthy', 'healthy', 'unhealthy']);
  });

  test('of failures leaves one that nothing is known of unknown until it is sure', async () => {
    expect(await statuses([bad, bad, bad])).toEqual(['unknown', 'unknown', 'unhealthy']);
  });

  test('says what failed from the first failure on, and never touches the state or the version', async () => {
    await statuses([good, bad]);
    expect(await row()).toMatchObject({
      health_status: 'healthy',
      health_detail: 'write: The backend is away.',
      enabled: true,
      version: '1',
    });
    await statuses([good]);
    expect(await row()).toMatchObject({ health_detail: null });
  });
});

test('a check by hand decides at once', async () => {
  expect(await statuses([good, bad, good], 'decides')).toEqual(['healthy', 'unhealthy', 'healthy']);
});

describe('a glimpse of the marker', () => {
  const glimpse = async (finding: Finding): Promise<string> => {
    await noteGlimpse(db(), await row(), finding);
    return (await row()).health_status;
  };

  test('that is wrong decides at once, and two that are right decide again', async () => {
    await statuses([good]);
    expect(await glimpse(unmarked)).toBe('unhealthy');
    expect(await glimpse(good)).toBe('unhealthy');
    expect(await glimpse(good)).toBe('healthy');
  });

  test('does not call a backend healthy that can’t be written to', async () => {
    await statuses([bad], 'decides');
    for (let n = 0; n < 3; n += 1) expect(await glimpse(good)).toBe('unhealthy');
    expect(await row()).toMatchObject({ health_step: 'write' });
  });

  test('that could not be had changes nothing, however often', async () => {
    await statuses([good]);
    for (let n = 0; n < 5; n += 1) expect(await glimpse(bad)).toBe('healthy');
  });
});
