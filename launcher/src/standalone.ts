import { startTelemetry } from '@stowage/common/runtime/telemetry';

const telemetry = await startTelemetry('standalone', process.env);
const { runStandalone } = await import('./run-standalone.ts');
await runStandalone(process.env, telemetry);
