import { request } from 'node:http';
import type { Agent, IncomingMessage } from 'node:http';
import { once } from 'node:events';

const hangMs = 30_000;

export interface Call {
  method: string;
  url: string;
  headers: Record<string, string>;
  body?: Buffer | undefined;
}

/**
 * Sends a request and gives the head of its answer; the body is the caller's to read. Throws where no answer came, or none
 * within 30 s. As browsers do, it asks once more where a connection that was kept open turns out to be closed.
 */
export async function send(agent: Agent, call: Call, tries = 2): Promise<IncomingMessage> {
  const outgoing = request(call.url, {
    agent,
    method: call.method,
    headers: { ...call.headers, ...(call.body ? { 'content-length': String(call.body.length) } : {}) },
    timeout: hangMs,
  });
  outgoing.once('timeout', () => outgoing.destroy(new Error(`no byte for ${hangMs} ms`)));
  // Past the answer's head a break shows in the answer.
  outgoing.on('error', () => undefined);
  outgoing.end(call.body);
  try {
    const [answer]: IncomingMessage[] = await once(outgoing, 'response');
    if (answer === undefined) throw new Error('no answer');
    return answer;
  } catch (error) {
    if (tries > 1 && outgoing.reusedSocket && isReset(error)) return send(agent, call, tries - 1);
    throw error;
  }
}

function isReset(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'code' in error && error.code === 'ECONNRESET';
}

/** All of a body. Throws where it breaks off. */
export async function bodyOf(answer: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of answer) pieces.push(piece);
  return Buffer.concat(pieces);
}
