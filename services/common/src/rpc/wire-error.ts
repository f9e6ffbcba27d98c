import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { anyPack, anyUnpack } from '@bufbuild/protobuf/wkt';
import { Metadata, status } from '@grpc/grpc-js';
import type { ServiceError } from '@grpc/grpc-js';
import { ErrorInfoSchema } from '@stowage/proto/google/rpc/error_details';
import { StatusSchema } from '@stowage/proto/google/rpc/status';
import { AppError, errorTable, isErrorCode, unavailable } from '../errors.ts';
import type { ErrorCode } from '../errors.ts';

const detailsKey = 'grpc-status-details-bin';
const domain = 'stowage';
/** What does not fit into the trailer of an answer ends its connection, with all other calls on it. In bytes. */
const longest = { detail: 2_000, members: 16_000 };
/** How many items of each list are left of members that are too long. */
const fewItems = 20;

/** An AppError as a gRPC status with google.rpc.ErrorInfo in its details; of what is too long to be sent, the beginning. */
export function toServiceError(error: AppError): Partial<ServiceError> {
  const code = grpcStatusOf(error.code);
  const detail = Buffer.from(error.detail).subarray(0, longest.detail).toString();
  const info = create(ErrorInfoSchema, {
    reason: error.code,
    domain,
    metadata: { members: membersOf(error) },
  });
  const details = create(StatusSchema, { code, message: detail, details: [anyPack(ErrorInfoSchema, info)] });
  const metadata = new Metadata();
  metadata.set(detailsKey, Buffer.from(toBinary(StatusSchema, details)));
  return { code, details: detail, metadata };
}

function membersOf({ members }: AppError): string {
  const whole = JSON.stringify(members);
  if (Buffer.byteLength(whole) <= longest.members) return whole;
  const few = JSON.stringify(members, (_key, value: unknown) =>
    Array.isArray(value) ? value.slice(0, fewItems) : value,
  );
  return Buffer.byteLength(few) <= longest.members ? few : '{}';
}

/** The AppError that the other end threw, or `unavailable` where the other end could not be asked. */
export function fromServiceError(error: ServiceError, name: string): AppError {
  const packed = error.metadata?.get(detailsKey)[0];
  if (packed instanceof Buffer) {
    const any = fromBinary(StatusSchema, packed).details[0];
    const info = any && anyUnpack(any, ErrorInfoSchema);
    if (info && isErrorCode(info.reason)) {
      return new AppError(info.reason, error.details, { members: parseMembers(info.metadata['members']) });
    }
  }
  // Whoever cancelled knows: there is nothing to tell a log.
  if (error.code === status.CANCELLED) return unavailable('The request was cancelled.', undefined, 1);
  if (error.code === status.UNAVAILABLE || error.code === status.DEADLINE_EXCEEDED) {
    return unavailable(`${name.split('/')[0] ?? name} can't be reached just now.`, error);
  }
  return new AppError('internal', 'A service of ours failed.', { cause: error });
}

function parseMembers(json: string | undefined): Record<string, unknown> {
  const parsed: unknown = JSON.parse(json ?? '{}');
  return typeof parsed === 'object' && parsed !== null ? { ...parsed } : {};
}

function grpcStatusOf(code: ErrorCode): status {
  switch (errorTable[code].http) {
    case 400:
      return status.INVALID_ARGUMENT;
    case 401:
      return status.UNAUTHENTICATED;
    case 403:
      return status.PERMISSION_DENIED;
    case 404:
    case 410:
      return status.NOT_FOUND;
    case 413:
    case 416:
      return status.OUT_OF_RANGE;
    case 429:
    case 507:
      return status.RESOURCE_EXHAUSTED;
    case 500:
      return status.INTERNAL;
    case 503:
      return status.UNAVAILABLE;
    default:
      return status.FAILED_PRECONDITION;
  }
}
