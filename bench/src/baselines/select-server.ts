import { createServer } from 'node:http';
import pg from 'pg';
import { listenAndTell } from './listen.ts';

// Bare Node before bare PostgreSQL: each GET /<key> is one prepared SELECT, answered as JSON.
const [url = '', text = '', how] = process.argv.slice(2);
const connections = 10;

interface Queryable {
  query(query: { name: string; text: string; values: string[] }): Promise<{ rows: unknown[] }>;
}

const select = { name: 'select', text };
const next = how === 'pipelined' ? await pipelined() : pooled();
const server = createServer((request, response) => {
  next()
    .query({ ...select, values: [(request.url ?? '').slice(1)] })
    .then(({ rows }) => {
      const body = JSON.stringify(rows);
      response
        .writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) })
        .end(body);
    })
    .catch((error: unknown) => response.destroy(error instanceof Error ? error : new Error(String(error))));
});
listenAndTell(server);

function pooled(): () => Queryable {
  const pool = new pg.Pool({ connectionString: url, max: connections });
  return () => pool;
}

async function pipelined(): Promise<() => Queryable> {
  const clients = Array.from({ length: connections }, () => new pg.Client({ connectionString: url, pipeline: true }));
  await Promise.all(clients.map((client) => client.connect()));
  let turn = 0;
  return () => {
    const client = clients[turn++ % connections];
    if (!client) throw new Error('there are no connections');
    return client;
  };
}
