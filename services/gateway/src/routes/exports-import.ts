import type { ImportPlanResponse } from '@stowage/proto/stowage/export/v1/export';
import type { FastifyRequest } from 'fastify';
import { Readable } from 'node:stream';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { documentProblems, documentRequest, documentRoutes } from '../http/document-body.ts';
import { Closed, Id } from '../http/schemas.ts';
import { bodyLength } from '../tus/headers.ts';
import { Counts, toCounts } from './exports-shapes.ts';
import { Job, toJob } from './jobs.ts';
import { present } from './nodes.ts';

const Import = Type.Object(
  {
    imported: Counts,
    job: Job,
    previous_export_id: Type.String({
      ...Id,
      description: 'The metadata as they were: `GET /api/exports/metadata?id=` gives the document, to undo this.',
    }),
  },
  { title: 'Import' },
);

/** Contract §9: metadata in. */
export function importRoutes(app: App, { importPlan }: AppDependencies): void {
  documentRoutes(app, (routes) => {
    routes.route({
      method: 'POST',
      url: '/api/exports/metadata/import',
      config: {
        access: 'admin',
        allowedReadOnly: true,
        unhurried: true,
        takesBytes: true,
        problems: [...documentProblems, 'confirmation_required', 'plan_stale'],
      },
      schema: {
        tags: ['Metadata'],
        summary: 'Replace all metadata by the document of a restore plan',
        description:
          'The body is `{ "confirm_replace": true, "validation_token": "…", "document": … }`, plain or with Content-Encoding: gzip. ' +
          'The document was kept by the plan: it may be left out, and must be the same where it is sent. All or nothing. Replicas come ' +
          'in as `unverified`, backends that are not known at their place disabled and without secrets; nothing is removed from ' +
          'backends for 7 days. Users and sessions stay.',
        querystring: Closed({
          confirm_replace: Type.Optional(
            Type.Boolean({ description: 'Counts as in the body. A `false` anywhere wins.' }),
          ),
        }),
        response: { 200: Import },
      },
      handler: async (request) => {
        const { confirm_replace: confirmReplace } = request.query;
        const { body, gzip } = bodyOf(request);
        const wanted = confirmReplace === undefined ? { gzip } : { gzip, confirmReplace };
        return toImport(await importPlan(wanted, body, contextOf(request)));
      },
    });
  });
}

/** No body is `{}`, here as everywhere. */
function bodyOf(request: FastifyRequest): ReturnType<typeof documentRequest> {
  if (bodyLength(request.headers) !== 0) return documentRequest(request);
  return { body: Readable.from([Buffer.from('{}')]), gzip: false };
}

function toImport({ imported, job, previousExportId }: ImportPlanResponse): Static<typeof Import> {
  return {
    imported: toCounts(imported),
    job: toJob(present(job)),
    previous_export_id: previousExportId,
  };
}
