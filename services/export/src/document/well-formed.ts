/** In UTF-8 text the only way to half a character. */
export const surrogateEscape = /\\u[dD][89a-fA-F]/;

/** Whether all texts in a value of JSON are whole characters: PostgreSQL takes no others. */
export function isWellFormed(value: unknown): boolean {
  if (typeof value === 'string') return value.isWellFormed();
  if (typeof value !== 'object' || value === null) return true;
  return Object.entries(value).every(([key, inner]) => key.isWellFormed() && isWellFormed(inner));
}
