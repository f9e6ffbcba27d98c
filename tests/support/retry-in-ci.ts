import { jest } from '@jest/globals';

// Real servers on two busy cores miss a deadline now and then. CI tries such a test once more and prints why the first
// try failed; on a developer's machine a test that fails, fails.
jest.retryTimes(process.env['CI'] === 'true' ? 1 : 0, { logErrorsBeforeRetry: true });
