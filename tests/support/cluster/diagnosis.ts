import { tryCommand } from './commands.ts';

const lines = '30';

/** What pods of a namespace are, what happened to them, and the last lines that those say which are not Ready. */
export async function describePods(namespace: string): Promise<string> {
  const inside = ['-n', namespace];
  const ask = async (...args: string[]): Promise<string> => {
    const { out, errors } = await tryCommand('kubectl', [...inside, ...args]);
    return out + errors;
  };
  const listed = await ask('get', 'pods', '-o', 'json');
  const unready = notReady(listed);
  const logs = await Promise.all(
    unready.map(async (pod) => `--- ${pod}\n${await ask('logs', pod, '--all-containers', `--tail=${lines}`)}`),
  );
  const events = await ask('get', 'events', '--field-selector', 'type=Warning', '--sort-by=.lastTimestamp');
  return [await ask('get', 'pods', '-o', 'wide'), events.split('\n').slice(-20).join('\n'), ...logs].join('\n');
}

function notReady(listed: string): string[] {
  if (!listed.startsWith('{')) return [];
  const { items } = JSON.parse(listed);
  return items
    .filter(
      (pod: PodStatus) => !pod.status.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True'),
    )
    .map((pod: PodStatus) => pod.metadata.name);
}

interface PodStatus {
  metadata: { name: string };
  status: { conditions?: { type: string; status: string }[] };
}
