/** JSON in letters that a header and a query take as they are. */
export function toBase64Json(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}

/** What toBase64Json was given; null for a text that holds no JSON. */
export function fromBase64Json(text: string): unknown {
  try {
    return JSON.parse(Buffer.from(text, 'base64url').toString());
  } catch {
    return null;
  }
}
