import { startTelemetry } from '@stowage/common/runtime/telemetry';

const telemetry = await startTelemetry('upload', process.env);
const { runService } = await import('@stowage/common/runtime/run-service');
const { serviceProcess } = await import('./service.ts');
await runService(serviceProcess, process.env, telemetry);
