import { BlockList } from 'node:net';
import { ofKind } from './chart.ts';
import type { KubernetesObject } from './chart.ts';
import type { Json } from './client.ts';

/** One end of a connection: a pod by its labels, or an address outside of the cluster. */
export interface Peer {
  labels?: Record<string, string>;
  /** The labels of the pod's namespace. */
  namespace?: Record<string, string>;
  address?: string;
}

const own = { 'kubernetes.io/metadata.name': 'ns' };

/** Whether the policies let this pod of the release's namespace open a TCP connection there. A pod that none is about may. */
export function mayReach(
  objects: readonly KubernetesObject[],
  pod: Record<string, string>,
  to: Peer,
  port: number,
): boolean {
  return passes(objects, 'Egress', pod, to, port);
}

/** Whether the policies let a connection of that peer into this pod of the release's namespace. */
export function mayBeReached(
  objects: readonly KubernetesObject[],
  pod: Record<string, string>,
  from: Peer,
  port: number,
): boolean {
  return passes(objects, 'Ingress', pod, from, port);
}

function passes(
  objects: readonly KubernetesObject[],
  type: 'Egress' | 'Ingress',
  pod: Record<string, string>,
  peer: Peer,
  port: number,
): boolean {
  const policies = ofKind(objects, 'NetworkPolicy').filter(
    ({ spec }) => spec.policyTypes.includes(type) && matches(spec.podSelector, pod),
  );
  if (policies.length === 0) return true;
  const [rules, side] = type === 'Egress' ? (['egress', 'to'] as const) : (['ingress', 'from'] as const);
  return policies.some(({ spec }) =>
    (spec[rules] ?? []).some((rule: Json) => isPort(rule['ports'], port) && isPeer(rule[side], peer)),
  );
}

function isPort(ports: Json[] | undefined, port: number): boolean {
  return !ports?.length || ports.some((one) => one['protocol'] === 'TCP' && one['port'] === port);
}

function isPeer(peers: Json[] | undefined, peer: Peer): boolean {
  if (!peers?.length) return true;
  return peers.some(({ ipBlock, podSelector, namespaceSelector }) => {
    if (ipBlock) return peer.address !== undefined && isInBlock(ipBlock, peer.address);
    if (!peer.labels) return false;
    const namespace = peer.namespace ?? own;
    const isThere = namespaceSelector ? matches(namespaceSelector, namespace) : namespace === own;
    return isThere && (!podSelector || matches(podSelector, peer.labels));
  });
}

function matches(selector: Json, labels: Record<string, string>): boolean {
  if (selector['matchExpressions']) throw new Error('this reading of network policies knows no matchExpressions');
  return Object.entries(selector['matchLabels'] ?? {}).every(([key, value]) => labels[key] === value);
}

function isInBlock({ cidr, except }: Json, address: string): boolean {
  return isInNetwork(cidr, address) && !(except ?? []).some((network: string) => isInNetwork(network, address));
}

function isInNetwork(network: string, address: string): boolean {
  const [base = '', length = ''] = network.split('/');
  const list = new BlockList();
  const family = base.includes(':') ? 'ipv6' : 'ipv4';
  list.addSubnet(base, Number(length), family);
  return address.includes(':') === (family === 'ipv6') && list.check(address, family);
}
