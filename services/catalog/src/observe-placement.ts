import type { Logger } from '@stowage/common/runtime/logger';
import { gauge, observeLooks } from '@stowage/common/runtime/metrics';
import type { Observation } from '@stowage/common/runtime/metrics';
import type pg from 'pg';

/** It reads all metadata: seconds for a million files. So it takes a hundredth of the time at most. */
const timing = { everyMs: 30_000, restFactor: 100, staleMs: 6 * 3_600_000 };

const states = ['satisfied', 'converging', 'degraded', 'lost'] as const;

/** A row for each class with a policy of its own that has files, and `default` for all others: clients make classes up. */
export interface PlacementCounts extends Record<(typeof states)[number], number> {
  fileClass: string;
  /** For how many seconds the first of those that are not satisfied has been so, at least; 0 where all are. */
  oldestUnmet: number;
}

/** Tells how many blobs of each class lie as their policy says. Gives what ends that. */
export function observePlacement(bulk: pg.Pool, logger: Logger): () => void {
  const blobs = gauge('stowage_placement_blobs', 'Content by file class and by how well its policy is kept.');
  const oldest = gauge(
    'stowage_placement_oldest_unmet_seconds',
    'How long, at least, content is not as its policy says.',
  );
  return observeLooks([blobs, oldest], { ...timing, logger }, async () => {
    const counts = await countPlacement(bulk);
    return counts.flatMap(({ fileClass, oldestUnmet, ...byState }): Observation[] => [
      ...states.map((state): Observation => [blobs, byState[state], { file_class: fileClass, state }]),
      [oldest, oldestUnmet, { file_class: fileClass }],
    ]);
  });
}

/**
 * Counts by the rule of placementState(). A blob counts once for each policy that it follows. Since when something is
 * amiss is not kept: not before the content, its policy and the state of the backends became what they are.
 */
export async function countPlacement(bulk: pg.Pool): Promise<PlacementCounts[]> {
  const { rows } = await bulk.query<PlacementCounts>(`
    with wanted as materialized (
      select w.file_class, w.replicas, w.usable_ids, s.since
      from placement.wanted_places w join placement.wanted_since s using (file_class)),
    lie as (
      select r.blob_id, bool_or(r.state in ('available', 'unverified')) as readable,
        bool_or(r.state in ('corrupt', 'missing') or b.health_status = 'unhealthy') as hurt,
        array_agg(r.backend_id) filter (
          where r.state = 'available' and b.enabled and b.health_status <> 'unhealthy') as good
      from catalog.replicas r join registry.backend_standing b on b.id = r.backend_id group by r.blob_id),
    files as (
      select distinct n.blob_id, coalesce(w.file_class, 'default') as file_class
      from catalog.nodes n left join wanted w using (file_class) where n.kind = 'file' and n.purged_at is null),
    judged as (
      select f.file_class, greatest(b.created_at, w.since) as since,
        case
          when l.readable is not true then 'lost'
          when cardinality(w.usable_ids) < w.replicas then 'degraded'
          when w.usable_ids <@ coalesce(l.good, '{}') then 'satisfied'
          when cardinality(coalesce(l.good, '{}')) < w.replicas and l.hurt then 'degraded'
          else 'converging'
        end as state
      from files f join catalog.blobs b on b.id = f.blob_id
      left join lie l on l.blob_id = f.blob_id
      left join wanted w on w.file_class = f.file_class)
    select file_class as "fileClass",
      ${states.map((state) => `(count(*) filter (where state = '${state}'))::float8 as ${state}`).join(', ')},
      coalesce(greatest(0, extract(epoch from now() - min(since) filter (where state <> 'satisfied'))), 0)::float8
        as "oldestUnmet"
    from judged group by file_class`);
  return rows;
}
