import { describe, test } from '@jest/globals';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { parseAllDocuments } from 'yaml';
import type { Json } from './client.ts';
import { helm } from './helm.ts';

export const chartFolder = join(import.meta.dirname, '../../charts/stowage');

/** The two versions of Kubernetes that the chart is rendered for and validated against. */
export const kubernetesVersions = ['1.31.0', '1.33.0'] as const;

/** One rendered object of Kubernetes. */
export interface KubernetesObject extends Json {
  apiVersion: string;
  kind: string;
  metadata: Json & { name: string };
}

export interface RenderOptions {
  release?: string;
  namespace?: string;
  kubeVersion?: string;
  /** A values file, of the repository's root, below the given values. */
  file?: string;
  /** Further arguments of `helm template`. */
  more?: readonly string[];
}

const rendered = new Map<string, Promise<KubernetesObject[]>>();

/**
 * What the chart makes of values, hooks and tests among it; the same values are rendered once. Throws an Error with helm's
 * own words where it refuses them.
 */
export function renderChart(values: Json = {}, options: RenderOptions = {}): Promise<KubernetesObject[]> {
  const key = JSON.stringify([values, options]);
  const known = rendered.get(key) ?? templateText(values, options).then(parseObjects);
  rendered.set(key, known);
  return known;
}

/** The same as the text that helm printed. */
export async function templateText(values: Json, options: RenderOptions = {}): Promise<string> {
  const { release = 'rel', namespace = 'ns', kubeVersion = kubernetesVersions[1], file, more = [] } = options;
  const root = join(chartFolder, '../..');
  const files = [...(file === undefined ? [] : ['-f', join(root, file)]), '-f', '-'];
  const arguments_ = [
    'template',
    release,
    chartFolder,
    '-n',
    namespace,
    '--kube-version',
    kubeVersion,
    ...files,
    ...more,
  ];
  return runHelm(arguments_, JSON.stringify(values));
}

/** Runs helm with this on its standard input; gives what it printed. */
export async function runHelm(given: readonly string[], input = ''): Promise<string> {
  if (helm === null) throw new Error('There is no helm on this machine.');
  const child = spawn(helm, given, { stdio: ['pipe', 'pipe', 'pipe'] });
  child.stdin.end(input);
  const [printed, complaints] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  if (child.exitCode !== 0) throw new Error(complaints);
  return printed;
}

/** Read as Kubernetes does, by YAML 1.1: `off` is no text and 0440 is octal. Throws where it is no YAML, or has a key twice. */
export function parseObjects(yaml: string): KubernetesObject[] {
  const documents = parseAllDocuments(yaml, { version: '1.1', uniqueKeys: true });
  if (!Array.isArray(documents)) return [];
  return documents.flatMap((document) => {
    const [mistake] = document.errors;
    if (mistake) throw mistake;
    const object: unknown = document.toJS();
    if (object === null) return [];
    if (!isObject(object)) throw new Error(`not an object of Kubernetes: ${JSON.stringify(object).slice(0, 200)}`);
    return [object];
  });
}

function isObject(value: unknown): value is KubernetesObject {
  const { apiVersion, kind, metadata }: Json = Object(value);
  return typeof apiVersion === 'string' && typeof kind === 'string' && typeof metadata?.['name'] === 'string';
}

/** Its kind and name, for messages and as a key. */
export function nameOf(object: KubernetesObject): string {
  return `${object.kind}/${object.metadata.name}`;
}

export function ofKind(objects: readonly KubernetesObject[], kind: string): KubernetesObject[] {
  return objects.filter((object) => object.kind === kind);
}

/** The only object of this kind whose name ends so. */
export function find(objects: readonly KubernetesObject[], kind: string, nameEnd: string): KubernetesObject {
  const found = ofKind(objects, kind).filter(({ metadata }) => metadata.name.endsWith(nameEnd));
  const [object] = found;
  if (!object || found.length > 1) throw new Error(`${found.length} objects of kind ${kind} end with ${nameEnd}`);
  return object;
}

/** A pod as some object makes it. */
export interface PodTemplate {
  /** Kind and name of the object. */
  owner: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
  spec: Json;
  containers: Json[];
}

/** Every pod that the objects make, those of hooks and tests too. */
export function podsOf(objects: readonly KubernetesObject[]): PodTemplate[] {
  return objects.flatMap((object) => {
    const template = object.kind === 'Pod' ? object : object['spec']?.template;
    if (!template?.spec?.containers) return [];
    const { metadata, spec } = template;
    return [
      {
        owner: nameOf(object),
        labels: metadata?.labels ?? {},
        annotations: metadata?.annotations ?? {},
        spec,
        containers: [...(spec.initContainers ?? []), ...spec.containers],
      },
    ];
  });
}

/** A suite on the rendered chart. Without helm it is skipped by name, or fails where CI is set. */
export function describeChart(subject: string, suite: () => void): void {
  if (helm !== null) describe(subject, suite);
  else if (process.env['CI']) test('needs helm', () => Promise.reject(new Error('There is no helm on this machine.')));
  else test.skip(`${subject} (needs helm)`, () => undefined);
}
