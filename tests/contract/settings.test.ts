import { describe, expect, test } from '@jest/globals';
import { mode } from '@stowage/tests/support/contract';
import { startSystem } from '@stowage/tests/support/system';

/** Starts with settings that must not do; gives what was printed, and the exit code as text. */
async function refusedStart(environment: Record<string, string>): Promise<string> {
  const started = await startSystem(mode(), environment).then(
    (system) => system,
    (error: unknown) => String(error),
  );
  if (typeof started === 'string') return started;
  await started.close();
  throw new Error('it started');
}

describe('A start with wrong settings', () => {
  test('ends with 1 and names all the mistakes in one message', async () => {
    const printed = await refusedStart({
      STOWAGE_ADMIN_PASSWORD: 'elevenchars',
      STOWAGE_TRUSTED_PROXIES: '10.0.0.0/8, everyone',
      STOWAGE_SESSION_TTL: 'for ever',
      STOWAGE_CORS_ORIGINS: '*',
      STOWAGE_LOGIN_FAILURES_PER_USER: '0',
    });
    expect(printed).toContain('the start ended with 1');
    const message = printed.slice(printed.indexOf('The settings are not right'));
    expect(message).toMatch(/STOWAGE_ADMIN_PASSWORD must have 12 to 256 characters/);
    expect(message).toMatch(/STOWAGE_TRUSTED_PROXIES .*everyone/);
    expect(message).toMatch(/STOWAGE_SESSION_TTL .*for ever/);
    expect(message).toMatch(/STOWAGE_CORS_ORIGINS .*\*/);
    expect(message).toMatch(/STOWAGE_LOGIN_FAILURES_PER_USER /);
    expect(printed).not.toContain('elevenchars');
    expect(printed).not.toMatch(/\n\s+at /);
  });

  test.each([
    ['an admin password of 257 characters', { STOWAGE_ADMIN_PASSWORD: 'x'.repeat(257) }, /STOWAGE_ADMIN_PASSWORD/],
    [
      'proxies that are everyone',
      { STOWAGE_TRUSTED_PROXIES: '10.0.0.0/8,0.0.0.0/0' },
      /STOWAGE_TRUSTED_PROXIES .*0\.0\.0\.0\/0/,
    ],
    ['proxies that are everyone, of IPv6', { STOWAGE_TRUSTED_PROXIES: '::/0' }, /STOWAGE_TRUSTED_PROXIES .*::\/0/],
    [
      'a database address that is none',
      { STOWAGE_DATABASE_URL: 'mysql://root:hunter2hunter2@localhost/x' }, // secretlint-disable-line
      /STOWAGE_DATABASE_URL/,
    ],
  ])('is refused for %s, without showing secrets', async (_what, environment, message) => {
    const printed = await refusedStart(environment);
    expect(printed).toContain('the start ended with 1');
    expect(printed).toMatch(message);
    expect(printed).not.toMatch(/xxxxxxxxxxxx|hunter2/);
  });
});
