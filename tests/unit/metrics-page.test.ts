import { describe, expect, test } from '@jest/globals';
import { parser } from '@prometheus-io/lezer-promql';
import { documentedMetrics, metricOf } from '@stowage/tests/support/metrics-page';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';

const files = join(import.meta.dirname, '../../charts/stowage/files');

interface Alert {
  alert: string;
  expr: string;
  for?: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
}

interface Panel {
  title: string;
  targets?: { expr: string }[];
}

const alertsText = await readFile(join(files, 'alerts.yaml'), 'utf8');
const { groups }: { groups: { name: string; rules: Alert[] }[] } = parse(alertsText);
const alerts = groups.flatMap(({ rules }) => rules);
const dashboard: { panels: Panel[] } = JSON.parse(await readFile(join(files, 'dashboard.json'), 'utf8'));
const panels = dashboard.panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ title, expr })));
const documented = await documentedMetrics();

/** What Grafana and the chart put in. */
function filledIn(query: string): string {
  return query.replaceAll('$__rate_interval', '5m');
}

/** A selector of a query: the metric, and the labels that it asks for or groups by. */
interface Use {
  metric: string;
  labels: string[];
  text: string;
}

/** The selectors of a query, by the grammar of Prometheus itself. Throws where it is no query. */
function usesOf(query: string): Use[] {
  const text = filledIn(query);
  const uses: Use[] = [];
  parser.parse(text).iterate({
    enter: ({ type, from, to, node }) => {
      if (type.isError) throw new Error(`no PromQL at ${from}: ${text}`);
      if (type.name !== 'VectorSelector') return;
      const name = node.getChild('Identifier');
      const selector = text.slice(from, to);
      uses.push({
        metric: metricOf(name ? text.slice(name.from, name.to) : '', documented),
        labels: [...selector.matchAll(/(\w+) *(?:=~|!~|!=|=)/g)].map(([, label = '']) => label),
        text: selector,
      });
    },
  });
  return uses;
}

/** Those that Prometheus puts on every series of a pod. */
const targetLabels = ['namespace', 'pod'];

function labelsOf(name: string): string[] {
  return [...(documented.find((metric) => metric.name === name)?.labels ?? []), ...targetLabels];
}

describe.each([
  ['alerts', alerts.map(({ alert, expr }) => ({ name: alert, expr })), 'namespace="$NAMESPACE"'],
  ['dashboard', panels.map(({ title, expr }) => ({ name: title, expr })), 'namespace="$namespace"'],
])('%s', (_what, queries, namespace) => {
  test.each(queries)('$name asks for metrics of the page, by labels that they have', ({ expr }) => {
    const uses = usesOf(expr);
    expect(uses.length).toBeGreaterThan(0);
    for (const { metric, labels, text } of uses) {
      expect(documented.map(({ name }) => name)).toContain(metric);
      expect(labelsOf(metric)).toEqual(expect.arrayContaining(labels));
      expect(text).toContain(namespace);
    }
    const known = new Set([...uses.flatMap(({ metric }) => labelsOf(metric)), 'le']);
    const grouped = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(/, */));
    expect(grouped.filter((label) => !known.has(label))).toEqual([]);
  });
});

test('the dashboard shows every metric', () => {
  const shown = new Set(panels.flatMap(({ expr }) => usesOf(expr).map(({ metric }) => metric)));
  expect([...shown].sort()).toEqual(documented.map(({ name }) => name).sort());
});

test.each(alerts)('$alert says what is wrong and where the way out stands', ({ alert, labels, annotations }) => {
  expect(alert).toMatch(/^Stowage[A-Z]\w+$/);
  expect(labels['severity']).toMatch(/^(critical|warning)$/);
  expect(annotations).toEqual({
    summary: expect.stringMatching(/\w.*\.$/),
    description: expect.stringMatching(/\w.*\.$/),
    runbook_url: expect.stringMatching(new RegExp(`deploy/operators\\.md#${alert.toLowerCase()}$`)),
  });
});

test('no alert is there twice', () => {
  const names = alerts.map(({ alert }) => alert);
  expect(new Set(names).size).toBe(names.length);
});
