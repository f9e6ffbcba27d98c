import { AppError, toAppError, validationError } from '@stowage/common/errors';
import type { FieldError } from '@stowage/common/errors';
import { toDatabaseError } from '@stowage/common/database/database-error';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { problemHeaders, problemOf } from './problem.ts';

/** Answers every error of a route with a problem document; logs a cause that no service behind has logged already. */
export function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const shown = asAppError(error);
  if (shown.code === 'internal' && shown.cause !== undefined) request.log.error({ err: shown.cause }, shown.detail);
  else if (shown.code === 'unavailable' && shown.cause !== undefined)
    request.log.warn({ err: shown.cause }, shown.detail);
  const problem = problemOf(shown, request.id);
  reply.code(problem.status).headers(problemHeaders(shown)).type('application/problem+json');
  void reply.serializer(JSON.stringify).send(problem);
}

function asAppError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  return isFastifyError(error) ? fromFastify(error) : toAppError(toDatabaseError(error));
}

/** Whether a body was refused unread for its length. */
export function isTooLarge(error: unknown): boolean {
  return isFastifyError(error) && error.code === 'FST_ERR_CTP_BODY_TOO_LARGE';
}

function isFastifyError(error: unknown): error is FastifyError {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && error.code.startsWith('FST_');
}

function fromFastify(error: FastifyError): AppError {
  if (error.validation) return fromValidation(error);
  switch (error.code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new AppError('payload_too_large', 'The body is longer than this route takes.');
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return new AppError('unsupported_media_type', 'Send the body as application/json.');
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return new AppError('not_found', 'There is nothing at this address.');
    default:
      return (error.statusCode ?? 500) < 500
        ? new AppError('validation_failed', 'The request is malformed.')
        : toAppError(error);
  }
}

function fromValidation(error: FastifyError): AppError {
  // An id that can't be one names nothing; what is no id is told what is wrong with it.
  const ofId = error.validation?.every(({ instancePath }) => instancePath.endsWith('_id')) ?? true;
  if (error.validationContext === 'params' && ofId) return new AppError('not_found', 'There is nothing with this id.');
  const inQuery = error.validationContext === 'querystring';
  const faults = Map.groupBy(error.validation ?? [], pathOf);
  return validationError(
    [...faults].slice(0, 32).map(([path, found]): FieldError => {
      return { pointer: inQuery ? `?${path.slice(1)}` : path, detail: explain(path, found) };
    }),
  );
}

type Fault = NonNullable<FastifyError['validation']>[number];

function pathOf({ instancePath, params }: Fault): string {
  const extra = params['additionalProperty'] ?? params['missingProperty'];
  return instancePath + (typeof extra === 'string' ? `/${escapePointer(extra)}` : '');
}

/** One sentence for all that is wrong with a value: a union of schemas tells of each of them. */
function explain(path: string, faults: readonly Fault[]): string {
  const [first] = faults;
  if (first?.keyword === 'additionalProperties') return 'is not a field of this request';
  if (first?.keyword === 'required') return 'is needed';
  const allowed = faults.flatMap(({ keyword, params }) =>
    keyword === 'const' ? [String(params['allowedValue'])] : [],
  );
  if (allowed.length > 0) return `must be one of ${allowed.join(', ')}`;
  const told = faults.flatMap(({ keyword, message }) => (keyword === 'anyOf' || !message ? [] : [message]));
  const isChoice = faults.some(({ keyword }) => keyword === 'anyOf');
  const text = [...new Set(told)].join(isChoice ? ' or ' : ' and ') || 'is not valid';
  return path === '' ? `The body ${text}.` : text;
}

function escapePointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1').slice(0, 200);
}
