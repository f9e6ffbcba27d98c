import { isDeepStrictEqual } from 'node:util';
import { ApiRefusal } from './api-client.ts';
import type { ApiAnswer, ApiClient } from './api-client.ts';
import type { Tell } from './apply-backends.ts';
import type { DeclaredPolicy } from './declared-file.ts';

/** Saves a policy where it differs from what is declared: each saving queues a full reconcile. Throws ApiRefusal. */
export async function applyPolicy(api: ApiClient, declared: DeclaredPolicy, tell: Tell): Promise<void> {
  const ids = await idsOf(api, declared.backends);
  const path = `/api/policies/placement/${encodeURIComponent(declared.fileClass)}`;
  const wanted = { backends: ids, replicas: declared.replicas, sync_replicas: declared.syncReplicas };
  const present = await find(api, path);
  if (present) {
    const { backends, replicas, sync_replicas } = present.body;
    if (isDeepStrictEqual({ backends, replicas, sync_replicas }, wanted)) return;
  }
  await api.change('PUT', path, { body: wanted, ifMatch: present?.etag ?? null });
  tell(`${present ? 'changed' : 'made'}: ${declared.replicas} of ${declared.backends.join(', ')}`);
}

async function find(api: ApiClient, path: string): Promise<ApiAnswer | null> {
  try {
    return await api.get(path);
  } catch (error) {
    if (error instanceof ApiRefusal && error.status === 404) return null;
    throw error;
  }
}

async function idsOf(api: ApiClient, names: readonly string[]): Promise<string[]> {
  const backends = await api.list('/api/backends');
  return names.map((name) => {
    const id = backends.find((backend) => backend['name'] === name)?.['id'];
    if (typeof id !== 'string') throw new ApiRefusal(400, `there is no backend named ${JSON.stringify(name)}`);
    return id;
  });
}
