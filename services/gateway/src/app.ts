import cors from '@fastify/cors';
import rateLimit from '@fastify/rate-limit';
import { AppError } from '@stowage/common/errors';
import Fastify, { LogController } from 'fastify';
import type { FastifyBaseLogger, FastifyRequest } from 'fastify';
import { createServer } from 'node:http';
import type { RequestListener, Server } from 'node:http';
import { addAuthorisation } from './auth/authenticate.ts';
import type { App, AppDependencies } from './app-types.ts';
import { addNotFound, requireAccess } from './http/access.ts';
import { isTooLarge, sendError } from './http/error-handler.ts';
import { addJsonParser } from './http/json-body.ts';
import { RequestCounts } from './http/request-counts.ts';
import { addGate, RequestGate } from './http/request-gate.ts';
import {
  addClientWatch,
  addCommonHeaders,
  addContinue,
  addGoingAway,
  addHostGuard,
  addTimeouts,
  onClientError,
  requestIdOf,
  setCommonHeaders,
} from './http/server-guards.ts';
import { addValidators } from './http/validation.ts';
import { authRoutes } from './routes/auth.ts';
import { backendRoutes } from './routes/backends.ts';
import { backendStateRoutes } from './routes/backends-state.ts';
import { contentRoutes } from './routes/content.ts';
import { directoryRoutes } from './routes/directories.ts';
import { addOpenApi, docsRoutes } from './routes/docs.ts';
import { exportRoutes } from './routes/exports.ts';
import { importRoutes } from './routes/exports-import.ts';
import { integrityRoute } from './routes/exports-integrity.ts';
import { restorePlanRoutes } from './routes/exports-plan.ts';
import { validateRoute } from './routes/exports-validate.ts';
import { fileRoutes } from './routes/files.ts';
import { jobRoutes } from './routes/jobs.ts';
import { jobStartRoutes } from './routes/jobs-start.ts';
import { policyRoutes } from './routes/policies.ts';
import { systemRoutes } from './routes/system.ts';
import { tusRoutes } from './routes/tus.ts';
import { uploadRoutes } from './routes/uploads.ts';
import { userRoutes } from './routes/users.ts';
import { drain } from './tus/drain.ts';

const exposedHeaders = [
  'Location',
  'Upload-Offset',
  'Upload-Length',
  'Upload-Defer-Length',
  'Upload-Metadata',
  'Upload-Expires',
  'Tus-Resumable',
  'Tus-Version',
  'Tus-Extension',
  'Tus-Max-Size',
  'Tus-Checksum-Algorithm',
  'ETag',
  'Content-Range',
  'Content-Disposition',
  'Retry-After',
  'X-Request-Id',
];

/** The public HTTP server: guards first, then the routes in the order of the interface. */
export async function buildApp(dependencies: AppDependencies): Promise<App> {
  const { settings } = dependencies;
  const loggerInstance: FastifyBaseLogger = dependencies.logger;
  const { requestsAtOnce: atOnce, requestsWaiting: waiting } = settings;
  const gate = new RequestGate({ atOnce, waiting, waitMs: requestWaitMs });
  const app: App = Fastify({
    loggerInstance,
    serverFactory: (handler) => createGatewayServer(gate.guard(handler), settings.headersTimeoutMs),
    genReqId: requestIdOf,
    logController: new LogController({ requestIdLogLabel: 'request_id', disableRequestLogging: true }),
    bodyLimit: settings.jsonBodyLimit,
    trustProxy: settings.trustedProxies.length > 0 ? settings.trustedProxies : false,
    forceCloseConnections: 'idle',
    return503OnClosing: false,
    routerOptions: { maxParamLength: 200 },
    clientErrorHandler: onClientError,
    frameworkErrors: (error, request, reply) => {
      setCommonHeaders(request, reply);
      sendError(error, request, reply);
    },
  });
  app.setErrorHandler(async (error, request, reply) => {
    if (isTooLarge(error) && !(await drain(request.raw))) void reply.header('connection', 'close');
    sendError(error, request, reply);
    return reply;
  });
  addValidators(app);
  addJsonParser(app);
  requireAccess(app);
  addCommonHeaders(app, settings.publicUrl);
  addGoingAway(app, dependencies.isDraining);
  addHostGuard(app);
  addClientWatch(app);
  addTimeouts(app, settings);
  addContinue(app);
  addRequestLog(app);
  await addCors(app, settings.corsOrigins);
  addAuthorisation(app, dependencies, settings);
  await addRateLimit(app, settings.requestsPerMinute);
  addGate(app, gate);
  addNotFound(app);
  await addOpenApi(app, settings.publicUrl);
  await app.register(async (routes: App) => addRoutes(routes, dependencies));
  return app;
}

function addRoutes(app: App, dependencies: AppDependencies): void {
  authRoutes(app, dependencies);
  userRoutes(app, dependencies);
  directoryRoutes(app, dependencies);
  fileRoutes(app, dependencies);
  contentRoutes(app, dependencies);
  tusRoutes(app, dependencies);
  uploadRoutes(app, dependencies);
  backendRoutes(app, dependencies);
  backendStateRoutes(app, dependencies);
  jobRoutes(app, dependencies);
  jobStartRoutes(app, dependencies);
  policyRoutes(app, dependencies);
  exportRoutes(app, dependencies);
  validateRoute(app, dependencies);
  integrityRoute(app, dependencies);
  restorePlanRoutes(app, dependencies);
  importRoutes(app, dependencies);
  systemRoutes(app, dependencies);
  docsRoutes(app);
}

/** Whoever waited longer has little use for the answer, and those behind would wait as long. */
const requestWaitMs = 1_000;

const socketBufferBytes = 1024 * 1024;

function createGatewayServer(handler: RequestListener, headersTimeout: number): Server {
  // Uploads may take days: only their headers, and every byte after the other, have a limit.
  const options = { highWaterMark: socketBufferBytes, requestTimeout: 0, headersTimeout, keepAliveTimeout: 65_000 };
  const server = createServer(
    { ...options, connectionsCheckingInterval: 1_000, maxHeaderSize: 32_768, requireHostHeader: false },
    handler,
  );
  server.on('checkContinue', handler);
  return server;
}

function addRequestLog(app: App): void {
  app.addHook('onResponse', async (request, reply) => {
    const { method, url: route } = request.routeOptions;
    request.log.info({
      method: method ?? request.method,
      route: route ?? null,
      status: reply.statusCode,
      duration_ms: Math.round(reply.elapsedTime * 10) / 10,
      user_id: request.session?.actor.userId ?? null,
    });
  });
}

async function addCors(app: App, origins: string[]): Promise<void> {
  if (origins.length === 0) return;
  const options = {
    origin: origins,
    methods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'],
    exposedHeaders,
    credentials: false,
    maxAge: 3600,
    strictPreflight: false,
  };
  await app.register(cors, {
    // Only a preflight is answered here: a plain OPTIONS asks what the route speaks, as in tus.
    delegator: async ({ headers }: FastifyRequest) => ({
      ...options,
      preflight: headers['access-control-request-method'] !== undefined,
    }),
  });
}

async function addRateLimit(app: App, perMinute: number): Promise<void> {
  if (perMinute === 0) return;
  await app.register(rateLimit, {
    max: perMinute,
    timeWindow: 60_000,
    store: RequestCounts,
    hook: 'preParsing',
    enableDraftSpec: true,
    keyGenerator: (request) => request.session?.actor.userId ?? request.ip,
    errorResponseBuilder: (_request, { ttl }) =>
      new AppError('rate_limited', 'Too many requests.', { members: { retry_after: Math.ceil(ttl / 1000) } }),
  });
}
