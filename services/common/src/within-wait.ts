/** What `work` gives, or null when that takes longer than `waitMs`; it goes on either way. */
export async function withinWait<R>(work: Promise<R>, waitMs: number): Promise<R | null> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), Math.max(0, waitMs));
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
