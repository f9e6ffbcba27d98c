import { describe, expect, test } from '@jest/globals';
import { serviceProcess as registry } from '@stowage/backend-registry/service';
import { serviceProcess as catalog } from '@stowage/catalog/service';
import {
  addressSettings,
  commonSettings,
  databaseSettings,
  portSettings,
} from '@stowage/common/runtime/common-settings';
import type { Setting } from '@stowage/common/runtime/settings';
import { tlsSettings } from '@stowage/common/tls/settings';
import { serviceProcess as exporting } from '@stowage/export/service';
import { serviceProcess as gateway } from '@stowage/gateway/service';
import { applySettings } from '@stowage/launcher/declared/apply-settings';
import { migrateSettings } from '@stowage/launcher/migrate-within';
import { smokeSettings } from '@stowage/launcher/smoke/settings';
import { launchSettings, replicaSettings } from '@stowage/launcher/instance';
import { serviceProcess as placement } from '@stowage/placement/service';
import { serviceProcess as upload } from '@stowage/upload/service';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

const all: Setting<unknown>[] = [
  launchSettings,
  replicaSettings,
  applySettings,
  smokeSettings,
  migrateSettings,
  gateway.settings,
  upload.settings,
  catalog.settings,
  registry.settings,
  placement.settings,
  exporting.settings,
  commonSettings,
  databaseSettings,
  portSettings,
  addressSettings,
  tlsSettings,
].flatMap((group) => Object.values<Setting<unknown>>(group));

function readReadme(): Promise<string> {
  return readFile(join(import.meta.dirname, '../../README.md'), 'utf8');
}

/** A row of the table in the README. */
function row(setting: Setting<unknown>): string {
  const fallback = setting.fallback === null ? '' : `\`${setting.fallback}\` `;
  return `| \`${setting.variable}\` | ${fallback}| ${setting.about} |`;
}

describe('the settings table of the README', () => {
  test.each([...new Map(all.map((setting) => [setting.variable, setting])).keys()])('tells of %s', async (variable) => {
    const readme = (await readReadme()).replaceAll(/ +/g, ' ');
    const rows = all.filter((setting) => setting.variable === variable).map(row);
    expect(rows.some((line) => readme.includes(line))).toBe(true);
  });

  test('tells of nothing else', async () => {
    const told = [...(await readReadme()).matchAll(/^\| `(STOWAGE_\w+)` +\|/gm)].map((match) => match[1]);
    const known = new Set(all.map((setting) => setting.variable));
    expect(told.filter((variable) => !known.has(variable ?? ''))).toEqual([]);
    expect(told.length).toBe(new Set(told).size);
  });
});
