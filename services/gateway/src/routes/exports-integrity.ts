import { timestampDate } from '@bufbuild/protobuf/wkt';
import type { CheckIntegrityResponse } from '@stowage/proto/stowage/export/v1/export';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { Nullable, Time } from '../http/schemas.ts';
import { Counts, toCounts } from './exports-shapes.ts';

/** It reads all of the metadata: as long as many millions of files take. */
const integrityTimeoutMs = 15 * 60_000;

const Integrity = Type.Object(
  {
    ok: Type.Boolean(),
    checked_at: Time,
    counts: Counts,
    problems: Type.Array(
      Type.Object({
        kind: Type.String({ description: 'Such as `file_without_blob`; more kinds may come.' }),
        id: Nullable(
          Type.String({
            description:
              'Of the node, blob, backend, upload or job, or the class of the policy, that it is about; of a replica, its blob’s.',
          }),
        ),
        detail: Type.String(),
      }),
      { maxItems: 1_000, description: 'At most 1,000, some of each kind.' },
    ),
    problem_count: Type.Integer({ minimum: 0, description: 'Of all problems.' }),
  },
  { title: 'Integrity' },
);

/** Contract §9: the metadata as they are, looked at for what should not be. */
export function integrityRoute(app: App, { exports }: AppDependencies): void {
  app.route({
    method: 'GET',
    url: '/api/exports/metadata/integrity',
    config: { access: 'admin', waits: true },
    schema: {
      tags: ['Metadata'],
      summary: 'Look at all metadata for what should not be',
      description:
        'Reads the metadata as they are at one moment and changes nothing. Backends are not asked: what they hold is compared by each ' +
        'full reconcile. After an import, what it found there beyond the metadata is told here as `unknown_object`, as long as removals are held.',
      response: { 200: Integrity },
    },
    handler: async (request) =>
      toIntegrity(await exports.checkIntegrity({}, contextOf(request), { timeoutMs: integrityTimeoutMs })),
  });
}

function toIntegrity(response: CheckIntegrityResponse): Static<typeof Integrity> {
  const { ok, checkedAt, problems, problemCount } = response;
  if (!checkedAt) throw new Error('export did not say when it looked');
  return {
    ok,
    checked_at: timestampDate(checkedAt).toISOString(),
    counts: toCounts(response.counts),
    problems: problems.map(({ kind, id, detail }) => ({ kind, id: id === '' ? null : id, detail })),
    problem_count: Number(problemCount),
  };
}
