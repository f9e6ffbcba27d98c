import type { PreviewPlacementResponse } from '@stowage/proto/stowage/placement/v1/policy';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { Closed, FileClass, Id, Nullable } from '../http/schemas.ts';

/** It looks at every file: as long as millions of them take. */
const previewTimeoutMs = 5 * 60_000;

const Count = Type.Integer({ minimum: 0 });

const Preview = Type.Object(
  {
    classes: Type.Array(
      Type.Object({
        file_class: Type.String(),
        files: Count,
        bytes: Count,
        satisfied: Count,
        to_copy: Type.Integer({ minimum: 0, description: 'Replicas to be made.' }),
        to_remove: Type.Integer({ minimum: 0, description: 'Replicas to be removed.' }),
        unsatisfiable: Count,
        lost: Count,
      }),
    ),
    backends: Type.Array(
      Type.Object({
        backend_id: Id,
        add_replicas: Count,
        add_bytes: Count,
        remove_replicas: Count,
        remove_bytes: Count,
      }),
    ),
    problems: Type.Array(
      Type.Object({
        code: Type.String({ enum: ['too_few_backends', 'backend_unhealthy', 'source_unreachable', 'lost'] }),
        file_class: Type.String(),
        backend_id: Nullable(Id),
        files: Count,
        detail: Type.String(),
      }),
    ),
  },
  { title: 'PlacementPreview' },
);

/** What a full reconcile would do: the planner's answer, and nothing is changed. */
export function previewRoute(app: App, { policies }: AppDependencies): void {
  app.route({
    method: 'GET',
    url: '/api/policies/placement/preview',
    config: { access: 'admin', waits: true, problems: ['not_found'] },
    schema: {
      tags: ['Placement'],
      summary: 'Tell what a full reconcile would do now, by today’s policies or with another one for a class',
      querystring: Closed({
        file_class: Type.Optional(FileClass),
        backends: Type.Optional(
          Type.String({
            pattern: '^[0-9a-f-]{36}(,[0-9a-f-]{36}){0,99}$',
            description: 'Backend ids, separated by commas, as the class’s policy would name them.',
            examples: ['0193fa2c-7a3e-7cc1-9f0e-0d5f1a2b3c4d'],
          }),
        ),
        replicas: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
      }),
      response: { 200: Preview },
    },
    handler: async (request) => {
      const { file_class: fileClass, backends, replicas } = request.query;
      const trial =
        backends === undefined && replicas === undefined
          ? undefined
          : { backendIds: backends?.split(',') ?? [], replicas };
      const wanted = { fileClass, trial };
      return toPreview(await policies.previewPlacement(wanted, contextOf(request), { timeoutMs: previewTimeoutMs }));
    },
  });
}

function toPreview({ classes, backends, problems }: PreviewPlacementResponse): Static<typeof Preview> {
  return {
    classes: classes.map((sums) => ({
      file_class: sums.fileClass,
      files: Number(sums.files),
      bytes: Number(sums.bytes),
      satisfied: Number(sums.satisfied),
      to_copy: Number(sums.toCopy),
      to_remove: Number(sums.toRemove),
      unsatisfiable: Number(sums.unsatisfiable),
      lost: Number(sums.lost),
    })),
    backends: backends.map((sums) => ({
      backend_id: sums.backendId,
      add_replicas: Number(sums.addReplicas),
      add_bytes: Number(sums.addBytes),
      remove_replicas: Number(sums.removeReplicas),
      remove_bytes: Number(sums.removeBytes),
    })),
    problems: problems.map(({ code, fileClass, backendId, files, detail }) => ({
      code,
      file_class: fileClass,
      backend_id: backendId ?? null,
      files: Number(files),
      detail,
    })),
  };
}
