import { PostponedJob } from '@stowage/common/jobs/job';
import type { JobHandler } from '@stowage/common/jobs/job';
import { BackendSlots } from '../backend-slots.ts';
import { followUpsOf, queueFollowUp } from './follow-up.ts';
import { RunSlot } from './run-slot.ts';
import { Walk } from './walk.ts';
import type { ReconcileNeeds } from './walk.ts';

/** A backend that holds up half of a run is left for a while, so that the rest goes on. */
const bulkSlots = { waitMs: 0, slowMs: 10_000, restMs: 60_000 };
const turn = { firstMs: 1_000, eachMs: 20, maxMs: 60_000 };

/**
 * Brings every blob to where its policies say. First what backends list is compared with the metadata, so that what that
 * shows is healed by the same run. Then come the blobs that are known to have a bad replica, which an index gives
 * at once; then all, page by page in the order of their ids, within a page those with the fewest good copies first. One
 * at a time: others wait for their turn, or end at once where a run that began after they were asked for went
 * without a failure. Goes on where it was after a crash. What fails is recorded, and a later run is queued for it.
 */
export function fullReconcile(needs: ReconcileNeeds): JobHandler {
  const slot = new RunSlot(needs.db);
  const slowMs = needs.judgesSlow === false ? Number.POSITIVE_INFINITY : bulkSlots.slowMs;
  const slots = new BackendSlots({
    ...bulkSlots,
    slowMs,
    most: needs.atOnce + 1,
    slowMost: Math.ceil(needs.atOnce / 2),
  });
  return async (job, run) => {
    const got = await slot.take(job);
    if (got.kind === 'covered') return { covered_by: got.by };
    if (got.kind === 'later') {
      throw new PostponedJob(Math.min(turn.firstMs + turn.eachMs * got.waiting, turn.maxMs));
    }
    const walk = new Walk({ ...needs, slots }, job, run, got.position);
    await walk.begin();
    for (;;) {
      const more = await walk.page();
      const position = walk.position();
      if (!more) {
        await slot.keep(job, position, walk.isClean);
        break;
      }
      await slot.keep(job, position);
    }
    if (walk.tally.counts.failed > 0) await queueFollowUp(needs.db, followUpsOf(job));
    return walk.result();
  };
}
