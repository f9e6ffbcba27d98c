import type { S3Account } from './s3-signature.ts';

/** One request of a list; the driver makes its bytes before the clock starts. */
export interface WireRequest {
  method: string;
  path: string;
  headers?: Record<string, string>;
  /** A text, or a number of filler bytes. */
  body?: string | number;
  /** The only status that counts; any other ends the run. */
  expect: number;
  /** Requests of one label have a median of their own. */
  label?: string;
}

interface Target {
  port: number;
  connections: number;
  /** Sent as the bearer token. */
  token?: string;
}

/** Independent requests, taken from the list in turn until `count` are done. */
export interface RequestsJob extends Target {
  kind: 'requests';
  requests: readonly WireRequest[];
  count: number;
  /** How much a connection reads at once: little for many connections, much for long bodies. */
  readBytes: number;
}

/** One file by tus: POST, PATCHes of at most `patchBytes`, finalize. */
export interface TusFileJob extends Target {
  kind: 'tus-file';
  name: string;
  bytes: number;
  patchBytes: number;
}

/** Many small files by tus: creation with the bytes, finalize. */
export interface TusFilesJob extends Target {
  kind: 'tus-files';
  prefix: string;
  bytes: number;
  count: number;
}

/** Opens `connections`, keeps them all open, and sends each request over the next one in turn, `active` at a time. */
export interface OpenConnectionsJob extends Target {
  kind: 'open-connections';
  active: number;
  request: WireRequest;
  count: number;
}

/** One prepared statement over `connections` connections of PostgreSQL. */
export interface StatementsJob {
  kind: 'statements';
  url: string;
  connections: number;
  text: string;
  /** The values of each call, taken in turn. */
  values: readonly (readonly string[])[];
  count: number;
}

/** Objects of one size by plain PUTs, named `prefix` and a number. */
export interface S3PutsJob extends S3Account {
  kind: 's3-puts';
  connections: number;
  prefix: string;
  bytes: number;
  count: number;
}

export type Job = RequestsJob | TusFileJob | TusFilesJob | OpenConnectionsJob | StatementsJob | S3PutsJob;

/** What a load came to. */
export interface Load {
  seconds: number;
  operations: number;
  /** Of content, without headers. */
  bytes: number;
  p50Ms: number;
  p99Ms: number;
  /** Of the driver itself. */
  driverCpuSeconds: number;
  /** Files that were made. */
  ids: string[];
  /** Parts of `seconds` by name. */
  parts: Record<string, number>;
  /** Of the requests of each label, in ms. */
  medians: Record<string, number>;
}
