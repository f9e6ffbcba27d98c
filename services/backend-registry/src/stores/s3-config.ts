import type { Agent as HttpAgent } from 'node:http';
import type { Agent as HttpsAgent } from 'node:https';

/** Where a backend of the type `s3` lies, and with which keys. */
export interface S3Config {
  /** The URL of an S3-compatible server; null for AWS itself. */
  endpoint: string | null;
  region: string;
  bucket: string;
  /** All keys begin with it; empty for the whole bucket. Slashes at its ends don't matter. */
  prefix: string;
  forcePathStyle: boolean;
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken: string | null;
}

/** Through which all connections go. They refuse denied addresses, and let as many through at once as callers ask for. */
export interface StoreAgents {
  http: HttpAgent;
  https: HttpsAgent;
}
