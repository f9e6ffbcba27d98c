import { Ajv } from 'ajv';
import ajvFormats from 'ajv-formats';
import type { FastifyInstance } from 'fastify';

const strictness = { allErrors: true, removeAdditional: false, useDefaults: true, strict: false } as const;

/** Bodies are taken as they are; query strings and parameters, which are text, are read as the schema's type. */
export function addValidators(app: FastifyInstance): void {
  const ofBodies = withFormats(new Ajv({ ...strictness, coerceTypes: false }));
  const ofText = withFormats(new Ajv({ ...strictness, coerceTypes: true }));
  app.setValidatorCompiler(({ schema, httpPart }) => (httpPart === 'body' ? ofBodies : ofText).compile(schema));
}

function withFormats(ajv: Ajv): Ajv {
  ajvFormats.default(ajv, ['uuid', 'date-time', 'uri-reference']);
  return ajv;
}
