import type { IncomingMessage, ServerResponse } from 'node:http';

/** Answers one request. */
export type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** A page of a listing with these keys; the last one says whether more follow. */
export function listing(...keys: [key: string, truncated: string][]): string {
  const objects = keys.map(
    ([name]) =>
      `<Contents><Key>${name}</Key><Size>3</Size><ETag>"e"</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>`,
  );
  const more = keys.at(-1)?.[1] ?? 'false';
  return `<ListBucketResult>${objects.join('')}<IsTruncated>${more}</IsTruncated><NextContinuationToken>t</NextContinuationToken></ListBucketResult>`;
}

/** Answers with this XML. */
export function respond(response: ServerResponse, text: string): void {
  response.writeHead(200, { 'content-type': 'application/xml' }).end(text);
}

/** A server that takes parts; `size` is what it then says the blob has. */
export function multipart(complete: Handler, size: number): Handler {
  return (request, response) => {
    request.resume();
    request.on('end', () => {
      if (request.url?.includes('uploads'))
        respond(response, '<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>');
      else if (request.method === 'POST') complete(request, response);
      else if (request.method === 'HEAD') response.writeHead(200, { 'content-length': size }).end();
      else response.writeHead(200, { etag: '"e"' }).end();
    });
  };
}
