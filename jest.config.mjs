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
  workerIdleMemoryLimit: '1GB',
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
