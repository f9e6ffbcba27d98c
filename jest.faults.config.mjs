import { common } from './jest.config.mjs';

/** `npm run test:faults`: what breaks is real, the size is CI's or, with STOWAGE_FAULTS=full, that of the promises. */
export default {
  testTimeout: 600_000,
  globalTeardown: '<rootDir>/tests/support/teardown.ts',
  projects: [
    {
      ...common,
      displayName: 'faults',
      globalSetup: '<rootDir>/tests/support/setup-postgres.ts',
      testMatch: ['<rootDir>/tests/faults/**/*.test.ts'],
    },
  ],
};
