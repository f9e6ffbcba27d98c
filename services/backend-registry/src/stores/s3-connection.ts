import type * as Sdk from '@aws-sdk/client-s3';
import type { S3Client, S3ClientConfig } from '@aws-sdk/client-s3';
import { limitAnswers } from './limit-answers.ts';
import type { StoreLimits } from './idle-limit.ts';
import type { S3Config, StoreAgents } from './s3-config.ts';
import { traceCalls } from './trace-calls.ts';

/** The SDK and a client of it. */
export interface S3Connection {
  sdk: typeof Sdk;
  client: S3Client;
  bucket: string;
  /** Before every key; empty or with a slash at its end. */
  prefix: string;
  limits: StoreLimits;
  /** AWS itself, not a server that speaks like it. */
  isAws: boolean;
}

/** Loads the SDK, which few installations need, and readies a client. Connects to nothing yet. */
export async function connectS3(config: S3Config, agents: StoreAgents, limits: StoreLimits): Promise<S3Connection> {
  const [sdk, { NodeHttpHandler }] = await Promise.all([
    import('@aws-sdk/client-s3'),
    import('@smithy/node-http-handler'),
  ]);
  const client = new sdk.S3Client({
    ...clientConfig(config),
    // Time is limited by signals, which know whether bytes still move; 0 keeps the SDK's own limits out.
    requestHandler: new NodeHttpHandler({
      httpAgent: agents.http,
      httpsAgent: agents.https,
      connectionTimeout: limits.connectMs,
      requestTimeout: 0,
      socketTimeout: 0,
    }),
  });
  limitAnswers(client);
  traceCalls(client);
  const prefix = config.prefix.replace(/^\/+|\/+$/g, '');
  return {
    sdk,
    client,
    bucket: config.bucket,
    prefix: prefix === '' ? '' : `${prefix}/`,
    limits,
    isAws: config.endpoint === null,
  };
}

const nothing = (): void => undefined;

/** What goes wrong is thrown. The SDK's own logger would warn of it on the console. */
const silent = { trace: nothing, debug: nothing, info: nothing, warn: nothing, error: nothing };

/** Names all that the SDK would otherwise look up in the environment, in files of the home folder or at a metadata service. */
function clientConfig(config: S3Config): S3ClientConfig {
  // Stores other than AWS refuse the trailing checksums that the SDK adds by itself.
  const checksums = config.endpoint === null ? 'WHEN_SUPPORTED' : 'WHEN_REQUIRED';
  return {
    ...(config.endpoint === null ? {} : { endpoint: config.endpoint }),
    region: config.region,
    forcePathStyle: config.forcePathStyle,
    credentials: {
      accessKeyId: config.accessKeyId,
      secretAccessKey: config.secretAccessKey,
      ...(config.sessionToken === null ? {} : { sessionToken: config.sessionToken }),
    },
    requestChecksumCalculation: checksums,
    responseChecksumValidation: checksums,
    logger: silent,
    maxAttempts: 1,
    retryMode: 'standard',
    defaultsMode: 'standard',
    authSchemePreference: ['sigv4'],
    disableS3ExpressSessionAuth: true,
    disableMultiregionAccessPoints: true,
    followRegionRedirects: false,
    // With it the SDK takes agents of its own, which know no denied addresses.
    expectContinueHeader: false,
    useArnRegion: false,
    useDualstackEndpoint: false,
    useFipsEndpoint: false,
    useAccelerateEndpoint: false,
    userAgentAppId: 'stowage',
    sigv4aSigningRegionSet: [config.region],
  };
}
