import { expect, test } from '@jest/globals';
import { describeChart, find, ofKind, renderChart } from '../support/chart.ts';
import { everything, minimal } from '../support/chart-values.ts';
import type { Json } from '../support/client.ts';

describeChart('monitoring', () => {
  test('is off unless it is asked for', async () => {
    const objects = await renderChart(minimal);
    const kinds = objects.map(({ kind }) => kind);
    expect(kinds).not.toContain('ServiceMonitor');
    expect(kinds).not.toContain('PrometheusRule');
    expect(JSON.stringify(ofKind(objects, 'ConfigMap'))).not.toContain('dashboard');
  });

  test('finds all six services, and each of their pods, by a selector of the metrics Service', async () => {
    const objects = await renderChart(everything);
    const [monitor] = ofKind(objects, 'ServiceMonitor');
    expect(monitor?.metadata['labels']).toMatchObject({ release: 'prometheus' });
    expect(monitor?.['spec'].endpoints).toEqual([
      expect.objectContaining({ port: 'management', path: '/metrics', interval: '30s', scrapeTimeout: '10s' }),
    ]);
    const chosen = ofKind(objects, 'Service').filter(({ metadata }) =>
      isChosen(monitor?.['spec'].selector, metadata['labels']),
    );
    expect(chosen.map(({ metadata }) => metadata.name)).toEqual(['rel-stowage-metrics']);
    const [service] = chosen;
    expect(service?.['spec'].ports).toContainEqual(expect.objectContaining({ name: 'management' }));
    const pods = ofKind(objects, 'Deployment').map(({ spec }) => spec.template.metadata.labels);
    expect(pods.filter((labels) => isChosen({ matchLabels: service?.['spec'].selector }, labels))).toHaveLength(6);
  });

  test('has alerts on this namespace, each with a severity, words and a runbook', async () => {
    const [rule] = ofKind(await renderChart(everything), 'PrometheusRule');
    const alerts: Json[] = rule?.['spec'].groups.flatMap((group: Json) => group['rules']);
    expect(alerts.length).toBeGreaterThan(10);
    for (const { alert, expr, labels, annotations } of alerts) {
      expect([alert, expr]).toEqual([alert, expect.stringContaining('namespace="ns"')]);
      expect(['critical', 'warning']).toContain(labels.severity);
      expect([alert, annotations.summary, annotations.description]).toEqual([
        alert,
        expect.any(String),
        expect.any(String),
      ]);
      expect(annotations.runbook_url).toContain(`deploy/operators.md#${alert.toLowerCase()}`);
    }
    expect(JSON.stringify(rule)).not.toContain('$NAMESPACE');
  });

  test('keeps the templates of alerts as Prometheus wants them', async () => {
    const [rule] = ofKind(await renderChart(everything), 'PrometheusRule');
    expect(JSON.stringify(rule)).toContain('{{ $value');
  });

  test('has a dashboard that Grafana can read', async () => {
    const dashboard = find(await renderChart(everything), 'ConfigMap', '-dashboard');
    expect(dashboard.metadata['labels']).toMatchObject({ grafana_dashboard: '1' });
    const [text = ''] = Object.values<string>(dashboard['data']);
    const { title, panels } = JSON.parse(text);
    expect(title).toMatch(/Stowage/);
    expect(panels.length).toBeGreaterThan(5);
  });
});

function isChosen(selector: Json | undefined, labels: Record<string, string>): boolean {
  return Object.entries(selector?.['matchLabels'] ?? {}).every(([key, value]) => labels[key] === value);
}
