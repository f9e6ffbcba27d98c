import { common } from './jest.config.mjs';

const faults = { ...common, globalSetup: '<rootDir>/tests/support/setup-postgres.ts' };
/** What measures needs the machine for itself; the others wait most of the time, and run two at a time. */
const measuring = ['backend-outage', 'many-connections', 'overload', 'sick-backends', 'slow-backend', 'slow-clients'];
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
      testPathIgnorePatterns: ['/node_modules/', ...measuring.map((name) => `/tests/faults/${name}\\.test\\.ts$`)],
    },
    { ...faults, displayName: 'measuring', testMatch: measuring.map(filesOf) },
  ],
};
