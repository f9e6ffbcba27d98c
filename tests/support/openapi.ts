import { Ajv2020 } from 'ajv/dist/2020.js';
import type { Client, Json } from './client.ts';
import { expectStatus } from './client.ts';

/** An OpenAPI 3.1 document whose schemas can be asked. */
export class Description {
  readonly document: Json;
  readonly #ajv: Ajv2020;

  /** Throws where the components hold a schema that is none (JSON Schema 2020-12, as OpenAPI 3.1 has it). */
  constructor(document: Json) {
    this.document = document;
    this.#ajv = new Ajv2020({ strict: true, strictTypes: false, allErrors: true });
    this.#ajv.addVocabulary(['components', 'paths', 'example']);
    this.#ajv.addFormat('date-time', /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    this.#ajv.addFormat('binary', true);
    const { components, paths } = document;
    this.#ajv.addSchema({ $id: 'stowage', components, paths });
  }

  static async of(client: Client): Promise<Description> {
    return new Description(expectStatus(await client.get('/api/openapi.json'), 200).json);
  }

  /** Every operation with where it stands. */
  operations(): { route: string; path: string; method: string; operation: Json }[] {
    return Object.entries<Json>(this.document['paths']).flatMap(([path, item]) =>
      Object.entries<Json>(item).map(([method, operation]) => ({
        route: `${method.toUpperCase()} ${path}`,
        path,
        method,
        operation,
      })),
    );
  }

  /** What is wrong with `value` by the schema at an RFC 6901 pointer into the document; empty where nothing is. */
  faults(pointer: string, value: unknown): string[] {
    const validate = this.#ajv.compile({ $ref: `stowage#${pointer}` });
    if (validate(value)) return [];
    return (validate.errors ?? []).map(
      (error) => `${error.instancePath} ${error.message} ${JSON.stringify(error.params)}`,
    );
  }

  /** The pointer to the schema of an answer; null where the description has no body there. */
  schemaOfAnswer(route: string, status: number, type = 'application/json'): string | null {
    const [method = '', path = ''] = route.split(' ');
    const content = this.document['paths'][path]?.[method.toLowerCase()]?.responses?.[status]?.content?.[type];
    if (content === undefined) return null;
    return ['', 'paths', path, method.toLowerCase(), 'responses', String(status), 'content', type, 'schema']
      .map(escape)
      .join('/');
  }

  /** The schema at a pointer, through its references. */
  resolve(pointer: string): Json {
    let found: Json = this.document;
    for (const step of pointer.split('/').slice(1)) found = found[step.replaceAll('~1', '/').replaceAll('~0', '~')];
    const reference = found['$ref'];
    return typeof reference === 'string' ? this.resolve(reference.slice(1)) : found;
  }
}

function escape(step: string): string {
  // A $ref is a URI: braces and the like of a path have to be encoded.
  return encodeURIComponent(step.replaceAll('~', '~0').replaceAll('/', '~1'));
}

/** Every object within a JSON value, with the pointer to it. */
export function* piecesOf(value: unknown, pointer = ''): Generator<{ pointer: string; piece: Json }> {
  if (typeof value !== 'object' || value === null) return;
  if (!Array.isArray(value)) yield { pointer, piece: { ...value } };
  for (const [key, item] of Object.entries(value)) {
    yield* piecesOf(item, `${pointer}/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`);
  }
}
