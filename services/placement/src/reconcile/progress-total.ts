import type { CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { ComparisonService } from '@stowage/proto/stowage/catalog/v1/comparison';
import type { ContentService } from '@stowage/proto/stowage/catalog/v1/content';

/** About how many replicas are compared and blobs are walked: from counts that are kept, whatever their number. */
export async function progressTotal(
  content: Client<typeof ContentService>,
  comparison: Client<typeof ComparisonService>,
  context: CallContext,
): Promise<number> {
  const [{ usage }, { blobs }] = await Promise.all([
    content.getBackendUsage({}, context),
    comparison.countBlobs({}, context),
  ]);
  return Number(usage.reduce((sum, { replicas }) => sum + replicas, blobs));
}
