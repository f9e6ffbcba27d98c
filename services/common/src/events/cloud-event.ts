import type { JsonObject } from '../jobs/job.ts';

/** An event as it is published: CloudEvents 1.0, in structured JSON. Its shape by family stands in schemas.ts. */
export interface CloudEvent {
  specversion: '1.0';
  /** The message id as well: a second delivery has the same. */
  id: string;
  /** `/stowage/jobs` or `/stowage/files`. */
  source: string;
  /** The subject that it is published on: `stowage.jobs.<kind>.<state>` or `stowage.files.<verb>`. */
  type: string;
  /** The id of the resource that changed; order is kept among the events of one resource. */
  subject: string;
  /** When the transaction of the change began, RFC 3339. */
  time: string;
  datacontenttype: 'application/json';
  /** W3C trace context of what caused the change, where it is known. */
  traceparent?: string;
  data: JsonObject;
}

/** A row of the outbox. */
export interface OutboxRow {
  id: string;
  subject: string;
  data: JsonObject;
  traceparent: string | null;
  created_at: Date;
}

/** The media type of the JSON that a message holds. */
export const cloudEventMediaType = 'application/cloudevents+json';

export function toCloudEvent(row: OutboxRow): CloudEvent {
  const { id, subject: type, data, traceparent } = row;
  return {
    specversion: '1.0',
    id,
    source: `/${type.split('.', 2).join('/')}`,
    type,
    subject: typeof data['id'] === 'string' ? data['id'] : id,
    time: row.created_at.toISOString(),
    datacontenttype: 'application/json',
    ...(traceparent === null ? {} : { traceparent }),
    data,
  };
}
