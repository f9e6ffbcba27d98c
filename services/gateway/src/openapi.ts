import { errorTable } from '@stowage/common/errors';
import type { ErrorCode } from '@stowage/common/errors';
import { version } from '@stowage/common/runtime/version';
import type { RouteOptions } from 'fastify';

/** Any piece of an OpenAPI document. */
export type Piece = { [key: string]: unknown };

/** The head of the document; the routes' schemas fill the rest. */
export function documentHead(publicUrl: string | null): Piece {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Stowage',
      version,
      description:
        'Files in a tree of directories, resumable uploads, a recycle bin. Errors are RFC 9457 problem documents; branch on `code`.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: publicUrl ?? '/' }],
    security: [{ bearer: [] }],
    components: {
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer', description: 'The access_token of POST /api/auth/login.' },
      },
      schemas: { Problem: problemSchema },
    },
  };
}

const problemSchema = {
  type: 'object',
  title: 'Problem',
  required: ['type', 'title', 'status', 'code', 'detail', 'request_id'],
  properties: {
    type: { type: 'string', examples: ['urn:stowage:problem:not_found'] },
    title: { type: 'string' },
    status: { type: 'integer' },
    code: { type: 'string', enum: Object.keys(errorTable) },
    detail: { type: 'string', description: 'A sentence for a person.' },
    request_id: { type: 'string' },
    errors: {
      type: 'array',
      items: {
        type: 'object',
        required: ['pointer', 'detail'],
        properties: { pointer: { type: 'string' }, detail: { type: 'string' } },
      },
    },
  },
  additionalProperties: true,
};

type Config = NonNullable<RouteOptions['config']>;

/** The codes that a route can give: what every route can, what its access and method imply, and its own. */
export function problemsOf(config: Config, method: string, hasInput: boolean): ErrorCode[] {
  const codes = new Set<ErrorCode>(config.problems ?? []);
  if (method === 'OPTIONS') return [...codes];
  if (hasInput || config.idempotent) codes.add('validation_failed');
  if (config.access !== 'public') codes.add('unauthenticated').add('forbidden').add('rate_limited');
  if (config.idempotent) codes.add('idempotency_key_reused');
  if (method === 'POST' || method === 'PUT' || method === 'PATCH')
    codes.add('payload_too_large').add('unsupported_media_type');
  codes.add('internal').add('unavailable');
  return [...codes];
}

/** Responses of a route's problems, one a status, each with an example a code. */
export function problemResponses(codes: readonly ErrorCode[]): Piece {
  const responses: { [status: string]: { description: string; content: Piece } } = {};
  const byStatus = Map.groupBy(codes, (code) => errorTable[code].http);
  for (const [status, group] of byStatus) {
    const examples = Object.fromEntries(group.map((code) => [code, { value: exampleOf(code) }]));
    responses[String(status)] = {
      description: group.map((code) => `\`${code}\`: ${errorTable[code].title}.`).join(' '),
      content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' }, examples } },
    };
  }
  return responses;
}

function exampleOf(code: ErrorCode): Piece {
  const { http, title } = errorTable[code];
  const requestId = '0193fa2c-7a3e-7cc1-9f0e-0d5f1a2b3c4d';
  return { type: `urn:stowage:problem:${code}`, title, status: http, code, detail: `${title}.`, request_id: requestId };
}

/** Responses that end well, each told by the route's summary where the schema says nothing of its own. */
export function goodResponses(responses: Piece, summary: string): Piece {
  return Object.fromEntries(
    Object.entries(responses).map(([status, response]) => {
      const told = isPiece(response) && 'description' in response;
      return [status, isPiece(response) && !told ? { ...response, 'x-response-description': `${summary}.` } : response];
    }),
  );
}

/** Moves every schema that has a title into the components, so that clients get named types. Changes `document`. */
export function nameSchemas(document: Piece): Piece {
  const schemas: Piece = { Problem: problemSchema };
  const visit = (value: unknown, isRoot: boolean): unknown => {
    if (Array.isArray(value)) return value.map((item) => visit(item, false));
    if (!isPiece(value)) return value;
    // An example is a value, not a schema, whatever its members are called.
    const copy = Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, key === 'examples' ? item : visit(item, false)]),
    );
    const title = value['title'];
    const isSchema = 'type' in value || 'anyOf' in value;
    if (isRoot || typeof title !== 'string' || !isSchema || !/^[A-Z]\w+$/.test(title)) return copy;
    schemas[title] = copy;
    return { $ref: `#/components/schemas/${title}` };
  };
  const paths = visit(document['paths'], true);
  const components = isPiece(document['components']) ? document['components'] : {};
  return { ...document, paths, components: { ...components, schemas } };
}

/** Says what may be left out: bodies whose fields are all optional, and parameters with a default. Changes `document`. */
export function markOptional(document: Piece): Piece {
  for (const operation of pieces(document['paths']).flatMap(pieces)) {
    const { requestBody, parameters } = operation;
    if (isPiece(requestBody)) {
      const bodies = pieces(requestBody['content']).map(({ schema }) => schema);
      requestBody['required'] = bodies.some((body) => isPiece(body) && body['required'] !== undefined);
    }
    for (const parameter of Array.isArray(parameters) ? parameters : [])
      if (isPiece(parameter['schema']) && 'default' in parameter['schema']) parameter['required'] = false;
  }
  return document;
}

function pieces(value: unknown): Piece[] {
  return isPiece(value) ? Object.values(value).filter(isPiece) : [];
}

function isPiece(value: unknown): value is Piece {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
