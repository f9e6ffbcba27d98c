/**
 * How much longer one call takes than another, in ms: both by turns, so that a busy machine slows both alike, compared at
 * the lower quartile, which such a machine moves least.
 */
export async function timeDifference(
  one: () => Promise<unknown>,
  other: () => Promise<unknown>,
  samples: number,
): Promise<number> {
  const times: { one: number[]; other: number[] } = { one: [], other: [] };
  for (let i = 0; i < samples; i += 1) {
    const turn = ['one', 'other'] as const;
    for (const which of i % 2 === 0 ? turn : turn.toReversed()) {
      const start = performance.now();
      await (which === 'one' ? one() : other());
      times[which].push(performance.now() - start);
    }
  }
  return lowerQuartile(times.one) - lowerQuartile(times.other);
}

/** The smallest difference of some tries: what is there by design is there every time. */
export async function leastDifference(
  one: () => Promise<unknown>,
  other: () => Promise<unknown>,
  { samples, enoughMs }: { samples: number; enoughMs: number },
): Promise<number> {
  const first = Math.abs(await timeDifference(one, other, samples));
  if (first < enoughMs) return first;
  return Math.min(first, Math.abs(await timeDifference(one, other, samples)));
}

function lowerQuartile(times: readonly number[]): number {
  const sorted = times.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 4)] ?? 0;
}
