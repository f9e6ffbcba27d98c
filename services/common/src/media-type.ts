/** RFC 6838 names; stricter than the tokens of RFC 9110, so that a stored type can go into a header as it is. */
const wellFormed = /^[a-z0-9][a-z0-9!#$&^_.+-]*\/[a-z0-9][a-z0-9!#$&^_.+-]*$/;
const longestType = 127;

/** Whether a file may have this media type: lower case, no parameters. */
export function isMediaType(text: string): boolean {
  return text.length <= longestType && wellFormed.test(text);
}
