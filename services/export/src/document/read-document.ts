import type { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { documentLayout, DocumentReader } from './document-reader.ts';
import type { RecordSink } from './document-reader.ts';
import { expanded } from './expanded.ts';
import type { Expanding } from './expanded.ts';
import { Findings } from './findings.ts';
import { WrongFormat } from './header.ts';
import type { LineStore } from './ordered-digest.ts';
import type { SectionName } from './records.ts';
import { Splitter } from './splitter.ts';
import type { Layout, Piece } from './splitter.ts';
import { Unreadable } from './unreadable.ts';

/** What reading a document from end to end showed. */
export interface ReadDocument {
  findings: Findings;
  counts: Record<SectionName, number>;
  /** Empty where it could not be read to its end. */
  sha256: string;
  instanceId: string | null;
  exportedAt: string | null;
  /** Whether each record is right in itself, and was handed to the sink. */
  allRight: boolean;
}

/** Reads and checks a document. Throws AppError `validation_failed` where it is not JSON, `payload_too_large`. */
export async function readDocument(
  body: Readable,
  expanding: Expanding,
  store: LineStore,
  sink: RecordSink | null,
): Promise<ReadDocument> {
  const findings = new Findings();
  const reader = new DocumentReader(findings, store, sink);
  let sha256 = '';
  try {
    await split(body, expanding, documentLayout, (piece) => reader.take(piece.path[0] ?? '', piece));
    sha256 = await reader.finish();
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    tellUnreadable(findings, error);
  }
  const { counts, header, allRight } = reader;
  const { instanceId, exportedAt } = header;
  return { findings, counts, sha256, instanceId, exportedAt, allRight: allRight && sha256 !== '' };
}

/** Notes why a document is not read any further. */
export function tellUnreadable(findings: Findings, error: Unreadable): void {
  const { pointer, code, detail } = error.finding;
  if (error instanceof WrongFormat) findings.only(error.finding);
  else findings.error(pointer, code, detail);
}

/** Hands a body's pieces on, one after the other. Others get their turn in between. */
export async function split(
  body: Readable,
  expanding: Expanding,
  layout: Layout,
  take: (piece: Piece) => Promise<void> | undefined,
): Promise<void> {
  const splitter = new Splitter(layout);
  for await (const chunk of expanded(body, expanding)) {
    expanding.signal.throwIfAborted();
    for (const piece of splitter.feed(chunk)) await take(piece);
    await setImmediate();
  }
  splitter.end();
}
