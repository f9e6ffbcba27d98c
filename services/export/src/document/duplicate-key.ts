import { pointerOf } from './unreadable.ts';

/** The pointer of the first key that an object of a valid JSON text has twice; null where there is none. */
export function duplicateKey(text: string): string | null {
  const open: { keys: Set<string> | null; step: string | number }[] = [];
  for (let at = 0; at < text.length; at += 1) {
    const level = open.at(-1);
    switch (text[at]) {
      case '{':
        open.push({ keys: new Set(), step: '' });
        break;
      case '[':
        open.push({ keys: null, step: 0 });
        break;
      case '}':
      case ']':
        open.pop();
        break;
      case ',':
        if (level && typeof level.step === 'number') level.step += 1;
        break;
      case '"': {
        const end = stringEnd(text, at);
        if (level?.keys && isKey(text, end)) {
          level.step = String(JSON.parse(text.slice(at, end)));
          if (level.keys.has(level.step)) return pointerOf(...open.map(({ step }) => step));
          level.keys.add(level.step);
        }
        at = end - 1;
        break;
      }
      default:
    }
  }
  return null;
}

function stringEnd(text: string, start: number): number {
  let at = start + 1;
  while (text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
  return at + 1;
}

function isKey(text: string, end: number): boolean {
  let at = end;
  while (text[at] === ' ' || text[at] === '\n' || text[at] === '\r' || text[at] === '\t') at += 1;
  return text[at] === ':';
}
