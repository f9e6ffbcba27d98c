/** What every project shares. */
export const common = {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  transform: { '\\.ts$': '<rootDir>/scripts/jest-strip.cjs' },
  modulePathIgnorePatterns: ['<rootDir>/data'],
  setupFilesAfterEnv: ['<rootDir>/tests/support/retry-in-ci.ts'],
};
const contract = { ...common, testMatch: ['<rootDir>/tests/contract/**/*.test.ts'] };

/** The contract tests run twice: against one process, and against six that speak gRPC. */
export default {
  // A worker keeps the modules of every file that it ran, and collecting that garbage soon costs more than a new one.
  workerIdleMemoryLimit: '300MB',
  testTimeout: 60_000,
  globalTeardown: '<rootDir>/tests/support/teardown.ts',
  projects: [
    {
      ...common,
      displayName: 'unit',
      globalSetup: '<rootDir>/tests/support/setup-postgres.ts',
      testMatch: ['<rootDir>/{services,launcher,bench}/**/*.test.ts', '<rootDir>/tests/{support,unit}/**/*.test.ts'],
    },
    {
      ...contract,
      displayName: 'standalone',
      globalSetup: '<rootDir>/tests/support/setup-standalone.ts',
      globals: { stowageMode: 'standalone' },
    },
    {
      ...contract,
      displayName: 'services',
      globalSetup: '<rootDir>/tests/support/setup-services.ts',
      globals: { stowageMode: 'services' },
    },
    {
      ...common,
      displayName: 'attacks',
      globalSetup: '<rootDir>/tests/support/setup-standalone.ts',
      globals: { stowageMode: 'standalone' },
      testMatch: ['<rootDir>/tests/attacks/**/*.test.ts'],
    },
    {
      ...common,
      displayName: 'recovery',
      globalSetup: '<rootDir>/tests/support/setup-postgres.ts',
      testMatch: ['<rootDir>/tests/recovery/**/*.test.ts'],
    },
    {
      ...common,
      displayName: 'chart',
      globalSetup: '<rootDir>/tests/support/setup-chart.ts',
      testMatch: ['<rootDir>/tests/chart/**/*.test.ts'],
    },
  ],
};
