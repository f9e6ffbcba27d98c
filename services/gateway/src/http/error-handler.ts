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
  const faults = (error.validation ?? []).slice(0, 32).map((fault): FieldError => {
    const extra = fault.params['additionalProperty'] ?? fault.params['missingProperty'];
    const path = fault.instancePath + (typeof extra === 'string' ? `/${escapePointer(extra)}` : '');
    return {
      pointer: inQuery ? `?${path.slice(1)}` : path,
      detail: explain(fault.keyword, fault.message ?? 'is not valid'),
    };
  });
  return validationError(faults);
}

function explain(keyword: string, message: string): string {
  if (keyword === 'additionalProperties') return 'is not a field of this request';
  if (keyword === 'required') return 'is needed';
  return message;
}

function escapePointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1').slice(0, 200);
}
