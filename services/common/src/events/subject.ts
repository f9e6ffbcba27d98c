/** Whether a subject passes a filter of NATS: `*` is any one word, `>` at the end is one or more. */
export function subjectMatches(filter: string, subject: string): boolean {
  const words = subject.split('.');
  const wanted = filter.split('.');
  const open = wanted.at(-1) === '>';
  if (open ? words.length < wanted.length : words.length !== wanted.length) return false;
  return wanted.every((word, place) => word === '*' || (word === '>' && open) || word === words[place]);
}
