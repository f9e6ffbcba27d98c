/** What an error says, in one line; one of several, as of a name with several addresses, may say nothing itself. */
export function describeError(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) {
    return [...new Set(error.errors.map(describeError))].join('; ');
  }
  return error instanceof Error ? error.message : String(error);
}
