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
