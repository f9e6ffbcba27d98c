import type { JsonObject, MessageInitShape } from '@bufbuild/protobuf';
import { configFields } from '@stowage/common/backend-config';
import type { BackendType } from '@stowage/common/backend-config';
import { query } from '@stowage/common/database/transaction';
import type {
  BackendFaultSchema,
  BackendJudgementSchema,
  DocumentBackend,
  JudgeBackendsRequest,
  JudgeBackendsResponseSchema,
} from '@stowage/proto/stowage/backend_registry/v1/backend';
import { placeFault } from './config/check-place.ts';
import type { PlacedBackend, PlaceNeeds } from './config/check-place.ts';
import { isMoved, parseType } from './config/parse-config.ts';
import { findPlace, placesOverlap } from './config/place-overlaps.ts';
import type { FoundPlace } from './config/place-overlaps.ts';

type Fault = MessageInitShape<typeof BackendFaultSchema>;

/** A backend with the place where it lies. */
interface Placed extends PlacedBackend {
  place: FoundPlace;
}

/** One of a document. */
interface Candidate extends Placed {
  told: DocumentBackend;
}

/** Tells how the backends of a document would do here, as JudgeBackends says. */
export async function judgeBackends(
  needs: PlaceNeeds,
  { backends }: JudgeBackendsRequest,
): Promise<MessageInitShape<typeof JudgeBackendsResponseSchema>> {
  const rows = await query(() => needs.db.selectFrom('registry.backends').select(['id', 'type', 'config']).execute());
  const live = await Promise.all(rows.map(withPlace));
  const candidates = await Promise.all(
    backends.map(async (told): Promise<Candidate> => {
      const { id, config = {} } = told;
      return { ...(await withPlace({ id, type: parseType(told.type), config })), told };
    }),
  );
  const secrets = await secretFields(needs);
  return { judgements: await Promise.all(candidates.map((one) => judge(needs, one, { live, candidates, secrets }))) };
}

interface Others {
  live: readonly Placed[];
  candidates: readonly Candidate[];
  /** Of each live backend, by its id. */
  secrets: ReadonlyMap<string, readonly string[]>;
}

async function judge(
  needs: PlaceNeeds,
  candidate: Candidate,
  others: Others,
): Promise<MessageInitShape<typeof BackendJudgementSchema>> {
  const { id, type, config, told } = candidate;
  const now = others.live.find((backend) => backend.id === id);
  const known = now !== undefined && now.type === type && !isMoved(type, now.config, config);
  return {
    id,
    known,
    missingSecretFields: missingSecrets(type, told.secretFields, known ? (others.secrets.get(id) ?? []) : []),
    faults: known ? [] : [...(await placeFaults(needs, candidate)), ...overlapFaults(candidate, others)],
  };
}

async function withPlace(backend: { id: string; type: BackendType; config: JsonObject }): Promise<Placed> {
  return { ...backend, place: await findPlace(backend.type, backend.config) };
}

async function secretFields({ db }: PlaceNeeds): Promise<Map<string, string[]>> {
  const rows = await query(() => db.selectFrom('registry.backend_secrets').select(['backend_id', 'field']).execute());
  const fields = new Map<string, string[]>();
  for (const { backend_id: id, field } of rows) fields.set(id, [...(fields.get(id) ?? []), field]);
  return fields;
}

/** The secrets that a backend had or needs, less those that it has. */
function missingSecrets(type: BackendType, had: readonly string[], has: readonly string[]): string[] {
  return Object.entries(configFields[type])
    .filter(([name, { secret, needed }]) => secret && (needed || had.includes(name)) && !has.includes(name))
    .map(([name]) => name);
}

/** The folder of a local default backend is opened wherever it is: a document must not say where that may be. */
async function placeFaults(needs: PlaceNeeds, candidate: Candidate): Promise<Fault[]> {
  const isLocal = candidate.type === 'local_directory';
  const { isDefault } = candidate.told;
  const fault = await placeFault(needs, candidate);
  if (!fault) return [];
  const localCode = isDefault ? 'default_elsewhere' : 'outside_roots';
  return [{ code: isLocal ? localCode : 'endpoint_denied', ...fault }];
}

function overlapFaults({ id, place }: Candidate, { live, candidates }: Pick<Others, 'live' | 'candidates'>): Fault[] {
  const overlaps = (other: Placed): boolean => other.id !== id && placesOverlap(place, other.place);
  const faults: Fault[] = [];
  if (candidates.some(overlaps)) {
    const detail = 'lies in, or around, the place of another backend of the document';
    faults.push({ code: 'place_overlaps', pointer: '/config', detail });
  }
  if (live.some(overlaps)) {
    const detail = 'lies in, or around, the place of another backend that is here now, and may bear its marker';
    faults.push({ code: 'place_taken', pointer: '/config', detail });
  }
  return faults;
}
