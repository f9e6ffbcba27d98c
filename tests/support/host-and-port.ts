/** Where to connect to for an address of http; `URL` drops the port where it is 80. */
export function hostAndPort(url: string): { host: string; port: number } {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port || 80) };
}
