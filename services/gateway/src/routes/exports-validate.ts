import type { ValidateDocumentResponse } from '@stowage/proto/stowage/export/v1/export';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { documentProblems, documentRequest, documentRoutes } from '../http/document-body.ts';
import { Nullable, Sha256 } from '../http/schemas.ts';
import { drain } from '../tus/drain.ts';
import { Counts, Finding, toCounts, toFinding } from './exports-shapes.ts';

const Findings = Type.Array(Finding, { maxItems: 1_000, description: 'At most 1,000.' });

const Validation = Type.Object(
  {
    valid: Type.Boolean({ description: 'Whether it can be imported, as far as the document itself tells.' }),
    errors: Findings,
    warnings: Findings,
    counts: Counts,
    sha256: Nullable(Sha256),
  },
  { title: 'DocumentValidation' },
);

/** Contract §9: what is wrong with a document. */
export function validateRoute(app: App, { validateDocument }: AppDependencies): void {
  documentRoutes(app, (routes) => {
    routes.route({
      method: 'POST',
      url: '/api/exports/metadata/validate',
      config: {
        access: 'admin',
        allowedReadOnly: true,
        unhurried: true,
        takesBytes: true,
        problems: [...documentProblems, 'unavailable'],
      },
      schema: {
        tags: ['Metadata'],
        summary: 'Tell what is wrong with a metadata document',
        description:
          'The body is a metadata document, plain or with Content-Encoding: gzip. Nothing is changed and nothing is kept. `sha256` is ' +
          'that of the records as they were read, and null where the document could not be read to its end. What records say of each ' +
          'other is looked at once each of them is right in itself.',
        response: { 200: Validation },
      },
      handler: async (request, reply) => {
        const { body, gzip } = documentRequest(request);
        const validation = await validateDocument({ gzip }, body, contextOf(request));
        // A document that is wrong enough is not read to its end.
        if (!(await drain(request.raw))) void reply.header('connection', 'close');
        return toValidation(validation);
      },
    });
  });
}

function toValidation({
  valid,
  errors,
  warnings,
  counts,
  sha256,
}: ValidateDocumentResponse): Static<typeof Validation> {
  return {
    valid,
    errors: errors.map(toFinding),
    warnings: warnings.map(toFinding),
    counts: toCounts(counts),
    sha256: sha256 === '' ? null : sha256,
  };
}
