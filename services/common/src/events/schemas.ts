import { Type } from 'typebox';
import type { TObject } from 'typebox';
import { jobKinds, jobStates } from '../jobs/job.ts';

/** UUIDv7. */
const id = Type.String({
  pattern: '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$',
  description: 'A UUID of version 7.',
});
const closed = { additionalProperties: false };

/** The envelope of CloudEvents 1.0 around the data of a family. */
function cloudEventOf<D extends TObject>(family: string, type: string, data: D, description: string) {
  return Type.Object(
    {
      specversion: Type.Literal('1.0'),
      id: Type.Intersect([id], { description: 'The message id as well: a second delivery has the same.' }),
      source: Type.Literal(`/stowage/${family}`),
      type: Type.String({ pattern: type, description: 'The subject that it is published on.' }),
      subject: Type.Intersect([id], { description: 'The id of what changed, by which events are in order.' }),
      time: Type.String({ format: 'date-time' }),
      datacontenttype: Type.Literal('application/json'),
      traceparent: Type.Optional(Type.String({ pattern: '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' })),
      data,
    },
    { ...closed, description },
  );
}

const kinds = Object.keys(jobKinds);

/** `stowage.jobs.<kind>.<state>`: a job changed its state. */
export const jobEventSchema = cloudEventOf(
  'jobs',
  `^stowage\\.jobs\\.(${kinds.join('|')})\\.(${jobStates.join('|')})$`,
  Type.Object(
    {
      id,
      kind: Type.String({ enum: kinds }),
      state: Type.String({ enum: [...jobStates] }),
      attempt: Type.Integer({ minimum: 0, description: 'How often it was begun.' }),
    },
    closed,
  ),
  'A job changed its state. A hint: the job itself tells the truth.',
);

/** What may happen to a file or directory. */
export const fileVerbs = ['created', 'renamed', 'moved', 'recycled', 'restored', 'purged'] as const;

/** `stowage.files.<verb>`: a file or directory changed. */
export const fileEventSchema = cloudEventOf(
  'files',
  `^stowage\\.files\\.(${fileVerbs.join('|')})$`,
  Type.Object(
    {
      id,
      kind: Type.String({ enum: ['file', 'directory'] }),
      parent_id: Type.Union([id, Type.Null()]),
      name: Type.String({ minLength: 1 }),
      actor: Type.Union([id, Type.Null()], { description: 'The user, or null where time caused it.' }),
      request_id: Type.Union([Type.String(), Type.Null()]),
    },
    closed,
  ),
  'A file or directory changed.',
);
