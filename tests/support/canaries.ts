import { createHash } from 'node:crypto';
import pg from 'pg';

/** A word that must stand nowhere, and the forms in which it could stand somewhere after all. */
export interface Canary {
  what: string;
  forms: readonly string[];
}

/** A secret that not even its plain hash may be found of, such as a password. */
export function secret(what: string, word: string): Canary {
  const digests = ['md5', 'sha1', 'sha256', 'sha512'].flatMap((algorithm) =>
    (['hex', 'base64', 'base64url'] as const).map((encoding) => createHash(algorithm).update(word).digest(encoding)),
  );
  return { what, forms: [...formsOf(word), ...digests] };
}

/** A word whose hash may be kept, such as a token. */
export function hidden(what: string, word: string): Canary {
  return { what, forms: formsOf(word) };
}

/** The word as it is, in a URL, in hex, and in base64 wherever in a longer text it begins. */
export function formsOf(word: string): string[] {
  const base64 = [0, 1, 2].flatMap((skip) => {
    const bytes = Buffer.from(word).subarray(skip);
    // The last characters depend on what follows the word.
    return [bytes.toString('base64').replace(/=+$/, ''), bytes.toString('base64url')].map((text) => text.slice(0, -4));
  });
  const hex = Buffer.from(word).toString('hex');
  return [...new Set([word, encodeURIComponent(word), hex, hex.toUpperCase(), ...base64])];
}

/** Where canaries stand in a text, each with what is around it: a failure that shows the whole text helps nobody. */
export function findCanaries(text: string, canaries: readonly Canary[]): string[] {
  return canaries.flatMap(({ what, forms }) => {
    const form = forms.find((candidate) => text.includes(candidate));
    if (form === undefined) return [];
    const at = text.indexOf(form);
    return [`${what}: …${text.slice(Math.max(0, at - 200), at + form.length + 200)}…`];
  });
}

/** Every row of every table as text, by `schema.table`; bytes are in hex. */
export async function databaseText(url: string): Promise<Map<string, string>> {
  const database = new pg.Client({ connectionString: url });
  await database.connect();
  try {
    const { rows: tables } = await database.query<{ name: string }>(`
      select format('%I.%I', table_schema, table_name) as name from information_schema.tables
      where table_schema not in ('pg_catalog', 'information_schema') and table_type = 'BASE TABLE'`);
    const texts = new Map<string, string>();
    for (const { name } of tables) {
      const { rows } = await database.query<{ row: string }>(`select to_jsonb(t)::text as row from ${name} t`);
      texts.set(name, rows.map(({ row }) => row).join('\n'));
    }
    return texts;
  } finally {
    await database.end();
  }
}
