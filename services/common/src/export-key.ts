/**
 * The key of a kept export on its backend, `exports/20261121T000000Z-<id>.json.gz`: whoever has lost the database finds the
 * newest by its name.
 */
export function exportKey(exportId: string, madeAt: Date): string {
  const time = madeAt.toISOString().replace(/[-:]|\.\d+/g, '');
  return `exports/${time}-${exportId}.json.gz`;
}
