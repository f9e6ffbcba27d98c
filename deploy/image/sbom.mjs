// Reads what `npm sbom` makes of the lock file, writes it without what is not installed in this folder: other
// platforms' builds, and what the image leaves out.
import { existsSync } from 'node:fs';
import { json } from 'node:stream/consumers';

const bom = await json(process.stdin);
const components = bom.components.filter((component) => {
  const path = component.properties?.find(({ name }) => name === 'cdx:npm:package:path')?.value;
  return path === undefined || existsSync(path);
});
const kept = new Set([bom.metadata.component, ...components].map((component) => component['bom-ref']));
const dependencies = bom.dependencies
  .filter(({ ref }) => kept.has(ref))
  .map(({ ref, dependsOn = [] }) => ({ ref, dependsOn: dependsOn.filter((other) => kept.has(other)) }));
process.stdout.write(`${JSON.stringify({ ...bom, components, dependencies })}\n`);
