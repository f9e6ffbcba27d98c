import { dirname, join } from 'node:path';
import { expectStatus } from './client.ts';
import type { Client, Json } from './client.ts';
import { uniqueName } from './system.ts';

/** The backend that is there from the first start. */
export async function defaultBackend(root: Client): Promise<Json> {
  const { json } = expectStatus(await root.get('/api/backends?limit=1000'), 200);
  const [found] = json['items'].filter((backend: Json) => backend['is_default']);
  return found;
}

/** A folder of no backend yet, where one may lie; it does not exist. */
export async function freeFolder(root: Client): Promise<string> {
  return join(dirname((await defaultBackend(root))['config'].root_path), uniqueName('folder'));
}

/** What makes a new local backend. */
export async function newBackend(root: Client): Promise<Json> {
  return { name: uniqueName('backend'), type: 'local_directory', config: { root_path: await freeFolder(root) } };
}

/** Makes a local backend, which is healthy. */
export async function makeBackend(root: Client): Promise<Json> {
  return expectStatus(await root.post('/api/backends', await newBackend(root)), 201).json;
}
