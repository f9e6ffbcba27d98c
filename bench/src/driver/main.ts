import type { Job } from './jobs.ts';
import { keepOpen, sendRequests } from './requests.ts';
import type { Outcome } from './run.ts';
import { putObjects } from './s3-puts.ts';
import { runStatements } from './statements.ts';
import { uploadFile, uploadFiles } from './tus.ts';

// The driver: takes one job at a time from its parent and tells what it came to. Ends with its parent.
process.on('disconnect', () => process.exit(0));
process.on('message', (job: Job) => {
  const before = process.cpuUsage();
  run(job).then(
    (outcome) => {
      const { user, system } = process.cpuUsage(before);
      process.send?.({ load: { ...outcome, driverCpuSeconds: (user + system) / 1e6 } });
    },
    (error: unknown) =>
      process.send?.({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) }),
  );
});

function run(job: Job): Promise<Outcome> {
  switch (job.kind) {
    case 'requests':
      return sendRequests(job);
    case 'tus-file':
      return uploadFile(job);
    case 'tus-files':
      return uploadFiles(job);
    case 'open-connections':
      return keepOpen(job);
    case 'statements':
      return runStatements(job);
    case 's3-puts':
      return putObjects(job);
  }
}
