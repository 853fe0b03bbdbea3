/** The errors of the client. */
import type { JobState } from './answers.js';

export class JobQueueError extends Error {}

/** No answer from a job queue: no connection, a time-out, a broken connection, or a proxy's error page. */
export class UnreachableError extends JobQueueError {
  constructor(message: string, about: { maybe_done: boolean; status?: number | null; retry_after?: number | null });
  /** Whether the service may have executed the command nevertheless. */
  readonly maybe_done: boolean;
  /** The status of the proxy's page, or null. */
  readonly status: number | null;
  readonly retry_after: number | null;
}

export interface RefusedAnswer {
  success: false;
  error?: string;
  code?: string;
  id?: string | null;
  field?: string;
  state?: JobState;
  right?: string;
  topic?: string;
  retry_after?: number;
}

/**
 * The service refused the command. Each code has a class; a code that this version does not know is a RefusedError. The
 * message names the command, its job or topic, and the job's state: `delete order-close:1001: no such job`.
 */
export class RefusedError extends JobQueueError {
  constructor(answer: RefusedAnswer, status: number | null, retry_after: number | null, command?: object);
  readonly code: string | null;
  readonly status: number | null;
  readonly state: JobState | null;
  readonly field: string | null;
  /** Seconds before which a retry is pointless. */
  readonly retry_after: number | null;
  /** The whole answer. */
  readonly answer: RefusedAnswer;
}

export class BadJsonError extends RefusedError {}
export class BadFieldError extends RefusedError {}
export class UnknownFieldError extends RefusedError {}
export class UnknownCommandError extends RefusedError {}
export class TooManyError extends RefusedError {}
export class BadHttpError extends RefusedError {}
export class TooLargeError extends RefusedError {}
export class UnauthorizedError extends RefusedError {}
/** The token lacks the `right`, or does not reach the `topic`; null where that is not the reason. */
export class ForbiddenError extends RefusedError {
  readonly right: string | null;
  readonly topic: string | null;
}
export class NotFoundError extends RefusedError {}
export class NoSuchPathError extends RefusedError {}
export class MethodNotAllowedError extends RefusedError {}
export class MisdirectedError extends RefusedError {}
export class AlreadyExistsError extends RefusedError {}
export class ReservedError extends RefusedError {}
export class NotReservedError extends RefusedError {}
export class StaleLeaseError extends RefusedError {}
export class TooLateError extends RefusedError {}
export class WrongStateError extends RefusedError {}
export class TopicFullError extends RefusedError {}
export class TooFastError extends RefusedError {}
export class NoRoomError extends RefusedError {}
export class UnavailableError extends RefusedError {}
export class ShuttingDownError extends RefusedError {}
export class InternalError extends RefusedError {}
