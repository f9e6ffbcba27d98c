/** The middle of several readings with the least and the most. */
export interface Summary {
  median: number;
  min: number;
  max: number;
}

/** Sums up readings of the same thing. */
export function summarise(readings: readonly number[]): Summary {
  const sorted = [...readings].sort((a, b) => a - b);
  const at = (index: number): number => sorted[index] ?? 0;
  const half = (sorted.length - 1) / 2;
  return {
    median: (at(Math.floor(half)) + at(Math.ceil(half))) / 2,
    min: at(0),
    max: at(sorted.length - 1),
  };
}

/** The geometric mean of ratios; null where there are none. */
export function meanOf(ratios: readonly number[]): number | null {
  if (ratios.length === 0) return null;
  return Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / ratios.length);
}
