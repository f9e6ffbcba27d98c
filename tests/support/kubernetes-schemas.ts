import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { KubernetesObject } from './chart.ts';

const variable = 'STOWAGE_TEST_KUBERNETES_VALIDATE';
const version = '1.37.0';

/** What other projects define; the schemas of Kubernetes do not know them. */
const foreign = /^(cert-manager\.io|monitoring\.coreos\.com|gateway\.networking\.k8s\.io)\//;

/** For jest's set-up: has kubernetes-validate, which brings the schemas of many versions along, on this machine. */
export function installValidator(): void {
  if (process.env[variable]) return;
  const script = join(import.meta.dirname, '../../scripts/python-tool.sh');
  try {
    const folder = execFileSync(script, ['kubernetes-validate', version], { stdio: ['ignore', 'pipe', 'inherit'] });
    process.env[variable] = join(folder.toString().trim(), 'kubernetes-validate');
  } catch {
    process.stderr.write('Rendered objects are not validated against the schemas of Kubernetes on this machine.\n');
  }
}

/** Whether this machine has the schemas. */
export function canValidate(): boolean {
  return Boolean(process.env[variable]);
}

/** What the schemas of that version of Kubernetes say against the objects; keys that they do not know are mistakes. */
export function schemaMistakes(objects: readonly KubernetesObject[], kubeVersion: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'stowage-chart-'));
  try {
    const file = join(folder, 'objects.yaml');
    const known = objects.filter(({ apiVersion }) => !foreign.test(apiVersion));
    writeFileSync(file, known.map((object) => JSON.stringify(object)).join('\n---\n'));
    execFileSync(process.env[variable] ?? '', ['--strict', '--quiet', '-k', kubeVersion, file], { stdio: 'pipe' });
    return '';
  } catch (error) {
    const { stdout, stderr }: { stdout?: unknown; stderr?: unknown } = Object(error);
    return `${String(stdout)}${String(stderr)}${stdout === undefined ? String(error) : ''}`;
  } finally {
    rmSync(folder, { recursive: true });
  }
}
