/** Whether a client that sent this Accept-Encoding wants its answer compressed with gzip (RFC 9110 §12.5.3). */
export function prefersGzip(header: string | undefined): boolean {
  const weights = new Map<string, number>();
  for (const item of (header ?? '').toLowerCase().split(',')) {
    const [coding = '', ...parameters] = item.split(';').map((part) => part.trim());
    if (coding !== '') weights.set(coding === 'x-gzip' ? 'gzip' : coding, weightOf(parameters));
  }
  const gzip = weights.get('gzip') ?? weights.get('*') ?? 0;
  const identity = weights.get('identity') ?? weights.get('*') ?? 0;
  return gzip > 0 && gzip >= identity;
}

/** What is no weight is taken for a refusal: plain bytes are understood by all. */
function weightOf(parameters: readonly string[]): number {
  const [parameter] = parameters;
  if (parameter === undefined) return 1;
  const [, weight] = /^q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/.exec(parameter) ?? [];
  return weight === undefined || parameters.length > 1 ? 0 : Number(weight);
}
