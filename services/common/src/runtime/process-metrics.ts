import { metrics } from '@opentelemetry/api';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { version } from './version.ts';

const resolutionMs = 20;
const quantiles = [0.5, 0.99, 1] as const;

/** Tells which version runs here, as which `component`, and how long its event loop is held up. */
export function observeProcess(component: string): { stop(): void } {
  const meter = metrics.getMeter('stowage');
  meter
    .createObservableGauge('stowage_build_info', { description: 'Always 1: which version runs.' })
    .addCallback((result) => result.observe(1, { component, version }));
  const delay = monitorEventLoopDelay({ resolution: resolutionMs });
  delay.enable();
  meter
    .createObservableGauge('stowage_event_loop_delay_seconds', {
      description: 'By how much the event loop was late since the last scrape.',
    })
    .addCallback((result) => {
      for (const quantile of quantiles) {
        const late = Math.max(0, delay.percentile(quantile * 100) / 1e9 - resolutionMs / 1e3);
        result.observe(late, { component, quantile: String(quantile) });
      }
      delay.reset();
    });
  return { stop: () => void delay.disable() };
}
