import { createHash, createHmac } from 'node:crypto';

/** Where a bare S3 client works, and as whom. */
export interface S3Account {
  /** `http://host:port`. */
  endpoint: string;
  bucket: string;
  accessKey: string;
  secretKey: string;
}

const region = 'us-east-1';
const signedHeaders = 'host;x-amz-content-sha256;x-amz-date';

/** The headers that sign a request without a query (Signature Version 4), with the SHA-256 of its body. */
export function signedHeadersOf(
  { endpoint, accessKey, secretKey }: S3Account,
  method: string,
  path: string,
  body: Buffer,
): Record<string, string> {
  const hash = sha256(body);
  const date = new Date().toISOString().replace(/[-:]|\.\d+/g, '');
  const day = date.slice(0, 8);
  const headers = `host:${new URL(endpoint).host}\nx-amz-content-sha256:${hash}\nx-amz-date:${date}\n`;
  const canonical = [method, path, '', headers, signedHeaders, hash].join('\n');
  const scope = `${day}/${region}/s3/aws4_request`;
  const key = [region, 's3', 'aws4_request'].reduce(hmac, hmac(`AWS4${secretKey}`, day));
  const signature = hmac(key, `AWS4-HMAC-SHA256\n${date}\n${scope}\n${sha256(canonical)}`).toString('hex');
  return {
    'x-amz-date': date,
    'x-amz-content-sha256': hash,
    authorization: `AWS4-HMAC-SHA256 Credential=${accessKey}/${scope}, SignedHeaders=${signedHeaders}, Signature=${signature}`,
  };
}

function sha256(data: string | Buffer): string {
  return createHash('sha256').update(data).digest('hex');
}

function hmac(key: string | Buffer, data: string): Buffer {
  return createHmac('sha256', key).update(data).digest();
}
