import { timestampDate } from '@bufbuild/protobuf/wkt';
import { AppError } from '@stowage/common/errors';
import type { PlanRestoreResponse, SectionChanges } from '@stowage/proto/stowage/export/v1/export';
import { Type } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { documentProblems, documentRequest, documentRoutes } from '../http/document-body.ts';
import { Id, Nullable, Sha256, Time } from '../http/schemas.ts';
import { Finding, toFinding } from './exports-shapes.ts';
import { present } from './nodes.ts';

const Changes = Type.Object({
  create: Type.Integer(),
  update: Type.Integer(),
  remove: Type.Integer(),
  unchanged: Type.Integer(),
});

const action = ['create', 'update', 'remove', 'unchanged'] as const;

const RestorePlan = Type.Object(
  {
    validation_token: Nullable(
      Type.String({ description: 'For one import of this document, by this user. Null where there are blockers.' }),
    ),
    expires_at: Nullable(Time),
    document_sha256: Sha256,
    changes: Type.Object({
      directories: Changes,
      files: Changes,
      blobs: Changes,
      replicas: Changes,
      backends: Changes,
      policies: Changes,
    }),
    backends: Type.Array(
      Type.Object({
        id: Id,
        name: Type.String(),
        action: Type.String({ enum: [...action] }),
        missing_secret_fields: Type.Array(Type.String(), {
          description: 'Secrets that it needs or had, and that have to be given again by PATCH after the import.',
        }),
      }),
    ),
    warnings: Type.Array(Finding),
    blockers: Type.Array(Finding, { description: 'What makes an import of this document impossible here and now.' }),
  },
  { title: 'RestorePlan' },
);

/** Contract §9: what an import would do, and the token that it takes. */
export function restorePlanRoutes(app: App, { planRestore }: AppDependencies): void {
  documentRoutes(app, (routes) => {
    routes.route({
      method: 'POST',
      url: '/api/exports/metadata/restore-plan',
      config: {
        access: 'admin',
        allowedReadOnly: true,
        unhurried: true,
        takesBytes: true,
        problems: [...documentProblems, 'unprocessable'],
      },
      schema: {
        tags: ['Metadata'],
        summary: 'Tell what the import of a document would do, and keep it for that',
        description:
          'The body is a metadata document, plain or with Content-Encoding: gzip. The token lasts 1 h, for one import by this ' +
          'user, and only while directories, files, policies and the configuration of backends stay as they are.',
        response: { 200: RestorePlan },
      },
      handler: async (request) => {
        const { body, gzip } = documentRequest(request);
        return toPlan(await planRestore({ gzip }, body, contextOf(request)));
      },
    });
  });
}

function toPlan(plan: PlanRestoreResponse) {
  const validation = present(plan.validation);
  if (!validation.valid) {
    const errors = validation.errors.map(toFinding);
    throw new AppError('unprocessable', 'The document is not valid.', { members: { errors } });
  }
  const changes = new Map(plan.changes.map((section) => [section.section, section]));
  const of = (section: string) => toChanges(present(changes.get(section)));
  return {
    validation_token: plan.validationToken === '' ? null : plan.validationToken,
    expires_at: plan.expiresAt ? timestampDate(plan.expiresAt).toISOString() : null,
    document_sha256: validation.sha256,
    changes: {
      directories: of('directories'),
      files: of('files'),
      blobs: of('blobs'),
      replicas: of('replicas'),
      backends: of('backends'),
      policies: of('policies'),
    },
    backends: plan.backends.map(({ id, name, action, missingSecretFields }) => ({
      id,
      name,
      action,
      missing_secret_fields: missingSecretFields,
    })),
    warnings: plan.warnings.map(toFinding),
    blockers: plan.blockers.map(toFinding),
  };
}

function toChanges({ create, update, remove, unchanged }: SectionChanges) {
  return {
    create: Number(create),
    update: Number(update),
    remove: Number(remove),
    unchanged: Number(unchanged),
  };
}
