import { common } from './jest.config.mjs';

const faults = { ...common, globalSetup: '<rootDir>/tests/support/setup-postgres.ts' };
/** These measure, and need the machine for themselves. */
const measuring = ['backend-outage', 'many-connections', 'overload', 'sick-backends', 'slow-backend', 'slow-clients'];
/** These start things again on the ports that they had, which a test beside them might have taken meanwhile. */
const restarting = [
  'database',
  'import-kill',
  'kept-exports',
  'kills',
  'nats',
  'policy-jobs',
  'power',
  'syscalls',
  'terminations',
];
const alone = [...measuring, ...restarting];
const filesOf = (name) => `<rootDir>/tests/faults/${name}.test.ts`;

/** `npm run test:faults`: what breaks is real, the size is CI's or, with STOWAGE_FAULTS=full, that of the promises. */
export default {
  testTimeout: 600_000,
  globalTeardown: '<rootDir>/tests/support/teardown.ts',
  projects: [
    {
      ...faults,
      displayName: 'faults',
      testMatch: [filesOf('**/*')],
      testPathIgnorePatterns: ['/node_modules/', ...alone.map((name) => `/tests/faults/${name}\\.test\\.ts$`)],
    },
    { ...faults, displayName: 'alone', testMatch: alone.map(filesOf) },
  ],
};
