import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { RouteOptions } from 'fastify';
import type { App } from '../app-types.ts';
import type { RequestHeader } from '../http/access.ts';
import { documentHead, goodResponses, nameSchemas, problemResponses, problemsOf, markOptional } from '../openapi.ts';
import type { Piece } from '../openapi.ts';

const idempotencyKey = {
  description:
    'The same key (1–128 visible ASCII characters), user, route and body within 24 h answer the first result again.',
  pattern: '^[\\x21-\\x7e]{1,128}$',
};
const ifMatch = 'The ETag that the change is meant for, such as `"3"`; another version is 412.';

/** Request headers that a route takes, for the description; the handlers read them themselves. */
function headersOf(config: NonNullable<RouteOptions['config']>, method: string): Piece {
  const conditional = method !== 'GET' && method !== 'HEAD' && (config.problems ?? []).includes('precondition_failed');
  const told: Record<string, RequestHeader> = {
    ...(config.idempotent ? { 'Idempotency-Key': idempotencyKey } : {}),
    ...(conditional ? { 'If-Match': ifMatch } : {}),
    ...config.requestHeaders,
  };
  if (Object.keys(told).length === 0) return {};
  const properties: Piece = {};
  const required: string[] = [];
  for (const [name, header] of Object.entries(told)) {
    const { required: isRequired = false, ...schema } = typeof header === 'string' ? { description: header } : header;
    properties[name] = { type: 'string', ...schema };
    if (isRequired) required.push(name);
  }
  return { headers: { type: 'object', properties, required } };
}

const bytesBody = {
  consumes: ['application/offset+octet-stream'],
  body: { type: 'string', format: 'binary', description: 'Bytes of the content.' },
};

/** The plugin's own policy lets in other hosts and asks for TLS, which a plain start does not have. */
const staticCSP = {
  'default-src': "'self'",
  'base-uri': "'self'",
  'frame-ancestors': "'none'",
  'img-src': "'self' data:",
  'object-src': "'none'",
  'style-src': "'self' 'unsafe-inline'",
};

/** Collects the routes' schemas; has to come before the routes. */
export async function addOpenApi(app: App, publicUrl: string | null): Promise<void> {
  await app.register(swagger, {
    openapi: documentHead(publicUrl),
    transform: ({ schema, url, route }) => {
      const method = String(route.method);
      const config = route.config ?? {};
      const hasInput = Boolean(schema?.body ?? schema?.querystring ?? url.startsWith('/files'));
      const problems = problemResponses(problemsOf(config, method, hasInput));
      const good = goodResponses((schema?.response as Piece | undefined) ?? {}, schema?.summary ?? '');
      const responses: Piece = { ...problems, ...good };
      const security = config.access === 'public' ? { security: [] } : {};
      return {
        schema: {
          ...schema,
          ...security,
          ...headersOf(config, method),
          ...(config.takesBytes ? bytesBody : {}),
          response: responses,
        },
        url,
      };
    },
    transformObject: (document) =>
      nameSchemas('openapiObject' in document ? markOptional({ ...document.openapiObject }) : {}),
  });
  await app.register(async (docs: App) => {
    docs.addHook('onRoute', (route) => {
      route.config = { ...route.config, access: 'public' };
      route.schema = { ...route.schema, hide: true };
    });
    await docs.register(swaggerUi, {
      routePrefix: '/api/docs',
      staticCSP,
      uiConfig: { docExpansion: 'list', layout: 'BaseLayout' },
    });
  });
}

/** Contract, item 4: the description as a document; the page of it is at `/api/docs`. */
export function docsRoutes(app: App): void {
  app.route({
    method: 'GET',
    url: '/api/openapi.json',
    config: { access: 'public' },
    schema: { hide: true },
    handler: async (_request, reply) => {
      void reply.type('application/json').send(JSON.stringify(app.swagger()));
      await reply;
    },
  });
}
