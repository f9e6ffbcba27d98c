import { expect, test } from '@jest/globals';
import { backgroundContext, contextFromHeaders, contextToHeaders } from './context.ts';

const { signal } = new AbortController();

test('who calls, and for whom, is read as it was written', () => {
  const context = {
    ...backgroundContext(signal),
    actor: { userId: 'u', username: 'ada', role: 'admin' as const },
  };
  const headers: Record<string, string> = contextToHeaders(context);
  const { requestId, actor } = contextFromHeaders((name) => headers[name], signal);
  expect({ requestId, actor }).toEqual({ requestId: context.requestId, actor: context.actor });
});

test.each(['!!!', '', Buffer.from('[]').toString('base64url'), Buffer.from('{"role":"admin"}').toString('base64url')])(
  'a header that says %j states nobody, and throws nothing',
  (value) => {
    const { actor, idempotency } = contextFromHeaders(() => value, signal);
    expect({ actor, idempotency }).toEqual({ actor: null, idempotency: null });
  },
);
