/** The errors of the client: the service refused a command, or no answer arrived. */

/** The base class of all errors of the client. */
export class JobQueueError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/**
 * No answer from a job queue: no connection, a time-out, a broken connection, or a proxy's error page.
 * `maybe_done`: true if the service may still have executed the command. `status`: the proxy's HTTP status, or null.
 */
export class UnreachableError extends JobQueueError {
  constructor(message, { maybe_done, status = null, retry_after = null, cause }) {
    super(message, cause && { cause });
    this.maybe_done = maybe_done;
    this.status = status;
    this.retry_after = retry_after;
  }
}

/** The service refused the command. `answer` is its whole answer; fields that it did not send are null. */
export class RefusedError extends JobQueueError {
  constructor(answer, status, retry_after, command) {
    super(told(answer, command));
    this.code = answer.code ?? null;
    this.status = status;
    this.state = answer.state ?? null;
    this.field = answer.field ?? null;
    this.retry_after = answer.retry_after >= 0 ? Number(answer.retry_after) : retry_after;
    this.answer = answer;
  }
}

export class BadJsonError extends RefusedError {}
export class BadFieldError extends RefusedError {}
export class UnknownFieldError extends RefusedError {}
export class UnknownCommandError extends RefusedError {}
export class TooManyError extends RefusedError {}
export class BadHttpError extends RefusedError {}
export class TooLargeError extends RefusedError {}
export class UnauthorizedError extends RefusedError {}

/** The token lacks the `right`, or may not access the `topic`; each is null if it is not the reason. */
export class ForbiddenError extends RefusedError {
  constructor(answer, ...about) {
    super(answer, ...about);
    this.right = answer.right ?? null;
    this.topic = answer.topic ?? null;
  }
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

/** The class of each code, and its HTTP status, which the members of a batch do not carry. */
const CODES = {
  __proto__: null,
  BAD_JSON: [BadJsonError, 400],
  BAD_FIELD: [BadFieldError, 400],
  UNKNOWN_FIELD: [UnknownFieldError, 400],
  UNKNOWN_COMMAND: [UnknownCommandError, 400],
  TOO_MANY: [TooManyError, 400],
  BAD_HTTP: [BadHttpError, 400],
  TOO_LARGE: [TooLargeError, 413],
  UNAUTHORIZED: [UnauthorizedError, 401],
  FORBIDDEN: [ForbiddenError, 403],
  NOT_FOUND: [NotFoundError, 404],
  NO_SUCH_PATH: [NoSuchPathError, 404],
  METHOD_NOT_ALLOWED: [MethodNotAllowedError, 405],
  MISDIRECTED: [MisdirectedError, 421],
  ALREADY_EXISTS: [AlreadyExistsError, 409],
  RESERVED: [ReservedError, 409],
  NOT_RESERVED: [NotReservedError, 409],
  STALE_LEASE: [StaleLeaseError, 409],
  TOO_LATE: [TooLateError, 409],
  WRONG_STATE: [WrongStateError, 409],
  TOPIC_FULL: [TopicFullError, 429],
  TOO_FAST: [TooFastError, 429],
  NO_ROOM: [NoRoomError, 503],
  UNAVAILABLE: [UnavailableError, 503],
  SHUTTING_DOWN: [ShuttingDownError, 503],
  INTERNAL: [InternalError, 500],
};

/**
 * The error for a refusal.
 * @param {object|object[]} command the refused command, or the whole batch if that was refused
 * @param {number} [status] like `retry_after` from the HTTP reply; neither is passed for a member of a batch
 */
export function refusal(answer, command, status = null, retry_after = null) {
  const [ErrorClass, usualStatus] = CODES[answer.code] ?? [RefusedError, null];
  return new ErrorClass(answer, status ?? usualStatus, retry_after, command);
}

/** The message: the command, its subject, the service's sentence, and the job's state unless the sentence has it. */
function told({ error, code, state }, command) {
  const said = String(error ?? code ?? 'refused');
  const ofState = state == null || said.includes(state) ? '' : ` (the job is ${state})`;
  return `${subjectOf(command)}${said}${ofState}`;
}

/** Such as `delete ord-7: `; empty for a batch, and for a command without a job, schedule or topic. */
export function subjectOf({ command, id, name, topic, topics } = {}) {
  const about = id ?? name ?? topic ?? (Array.isArray(topics) ? topics.join(', ') : null);
  return about == null || command == null ? '' : `${command} ${about}: `;
}
