/** Whether a well-formed time is one of the calendar that PostgreSQL has too: no 30 February, no year 0. */
export function isRealTime(text: string): boolean {
  if (text.startsWith('0000')) return false;
  const day = Number(text.slice(8, 10));
  if (day <= 28) return true;
  const endOfMonth = new Date(0);
  endOfMonth.setUTCFullYear(Number(text.slice(0, 4)), Number(text.slice(5, 7)), 0);
  return day <= endOfMonth.getUTCDate();
}
