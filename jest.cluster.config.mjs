import { common } from './jest.config.mjs';
import { leftOut } from './tests/support/cluster/left-out.ts';

/** `npm run test:cluster`: what runs on a real cluster, through the Services of a release of the chart. */
export default {
  testTimeout: 600_000,
  globalTeardown: '<rootDir>/tests/support/cluster/teardown.ts',
  projects: [
    {
      ...common,
      displayName: 'cluster',
      // One that fails now and then fails: it promises that nothing is lost.
      setupFilesAfterEnv: [],
      testMatch: ['<rootDir>/tests/cluster/**/*.test.ts'],
    },
    {
      ...common,
      displayName: 'cluster-contract',
      globalSetup: '<rootDir>/tests/support/cluster/setup-contract.ts',
      globals: { stowageMode: 'cluster' },
      testMatch: ['<rootDir>/tests/contract/**/*.test.ts'],
      testPathIgnorePatterns: ['/node_modules/', ...leftOut().map(({ file }) => `/tests/contract/${file}$`)],
    },
  ],
};
