import { isUtf8 } from 'node:buffer';
import { duplicateKey } from './duplicate-key.ts';
import type { RecordBatch } from './splitter.ts';
import { notJson, pointerOf } from './unreadable.ts';

/** Parses a batch in one go. Throws AppError `validation_failed` where it is not JSON. */
export function parseBatch(section: string, batch: RecordBatch): { values: unknown[]; text: string } {
  const text = isUtf8(batch.bytes) ? batch.bytes.toString() : null;
  const values = text === null ? undefined : parsed(`[${text}]`);
  if (text !== null && Array.isArray(values) && values.length === batch.ends.length) return { values, text };
  throw faultOf(section, batch);
}

function faultOf(section: string, batch: RecordBatch): Error {
  for (const [index, start] of batch.starts.entries()) {
    const bytes = batch.bytes.subarray(start, batch.ends[index]);
    const pointer = pointerOf(section, batch.first + index);
    if (!isUtf8(bytes)) return notJson('The document is not valid UTF-8.', pointer, batch.offset + start);
    if (parsed(bytes.toString()) === undefined)
      return notJson('This is not valid JSON.', pointer, batch.offset + start);
  }
  return notJson('This is not valid JSON.', pointerOf(section, batch.first), batch.offset);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The place of a key that a record of a batch has twice, as a pointer within it; null where all differ. */
export function duplicateIn({ bytes, starts, ends }: RecordBatch, index: number, canonical: string): string | null {
  const text = bytes.subarray(starts[index], ends[index]).toString();
  return text === canonical ? null : duplicateKey(text);
}
