import type { KubeConfig, V1Secret } from '@kubernetes/client-node';
import type { SecretApi, SecretData } from './secret-api.ts';

const lookMs = 10_000;
/** The context that client-node makes up where it finds neither a kubeconfig nor a service account. */
const madeUp = 'loaded-context';
const gone = 410;

/**
 * The Secrets of this process's own namespace: of the pod's service account, or of the kubeconfig that KUBECONFIG names.
 * Null where there is no cluster. The client takes a second and 80 MiB to load, so it is loaded here and not before. Throws
 * for a kubeconfig that can't be read.
 */
export async function clusterSecrets(): Promise<SecretApi | null> {
  const { CoreV1Api, KubeConfig, Watch } = await import('@kubernetes/client-node');
  const config = new KubeConfig();
  config.loadFromDefault();
  if (config.getCurrentContext() === madeUp) return null;
  const namespace = namespaceOf(config);
  const core = config.makeApiClient(CoreV1Api);
  const watch = new Watch(config);
  return {
    look: async (name, signal) => {
      // With this selector a Role that names the Secret is enough to list and to watch it.
      const listing = core.listNamespacedSecret({ namespace, fieldSelector: selectorOf(name) });
      const { items, metadata } = await inTime(listing, signal);
      return {
        data: dataOf(items.find((item) => item.metadata?.name === name)),
        version: metadata?.resourceVersion ?? '',
      };
    },
    watch: async (name, version, tell, signal) => {
      const over = Promise.withResolvers<void>();
      const query = { fieldSelector: selectorOf(name), resourceVersion: version, allowWatchBookmarks: true };
      const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets`;
      const onEvent = (phase: string, object: WatchedObject): void => {
        if (phase === 'ERROR') over.reject(new WatchRefused(object.code ?? 0));
        else if (phase !== 'BOOKMARK' && object.metadata?.name === name)
          tell(phase === 'DELETED' ? null : dataOf(object));
      };
      const onEnd = (error: unknown): void => (isEnd(error) ? over.resolve() : over.reject(error));
      const onAbort = (): void => over.resolve();
      signal.addEventListener('abort', onAbort, { once: true });
      const request = watch.watch(path, query, onEvent, onEnd);
      request.catch(over.reject);
      try {
        await over.promise;
      } finally {
        signal.removeEventListener('abort', onAbort);
        request.then((open) => open.abort()).catch(() => undefined);
      }
    },
  };
}

type WatchedObject = Pick<V1Secret, 'data' | 'metadata'> & { code?: number };

/** An event that says why a watch can't go on, such as that its version is too old. */
class WatchRefused extends Error {
  override readonly name = 'WatchRefused';
  readonly statusCode: number;

  constructor(statusCode: number) {
    super(statusCode === gone ? 'The version is too old.' : 'The watch was refused.');
    this.statusCode = statusCode;
  }
}

function namespaceOf(config: KubeConfig): string {
  const context = config.getContextObject(config.getCurrentContext());
  return context?.namespace?.trim() || 'default';
}

function selectorOf(name: string): string {
  return `metadata.name=${name}`;
}

function dataOf(secret: Pick<V1Secret, 'data'> | undefined): SecretData | null {
  return secret ? (secret.data ?? {}) : null;
}

/** A watch that had nothing to tell for a while ends by its own limit. */
function isEnd(error: unknown): boolean {
  return !error || (error instanceof DOMException && (error.name === 'TimeoutError' || error.name === 'AbortError'));
}

/** The client has no limit of its own for a list. */
async function inTime<R>(call: Promise<R>, signal: AbortSignal): Promise<R> {
  const late = Promise.withResolvers<never>();
  const limit = AbortSignal.any([signal, AbortSignal.timeout(lookMs)]);
  const onAbort = (): void => late.reject(new Error('The Kubernetes API did not answer in time.'));
  limit.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([call, late.promise]);
  } finally {
    limit.removeEventListener('abort', onAbort);
    call.catch(() => undefined);
  }
}
