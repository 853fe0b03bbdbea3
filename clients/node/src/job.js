/** A job as a pop delivers it, and as a worker's handler receives it. */

const TRACEPARENT = /^[\da-f]{2}-([\da-f]{32})-[\da-f]{16}-[\da-f]{2}(-.*)?$/; // W3C Trace Context

/** A delivery of a job: `due` in unix seconds, `ttr` in seconds. */
export class Job {
  constructor(answer) {
    this.id = answer.id;
    this.topic = answer.topic;
    this.body = answer.value;
    this.lease = answer.lease;
    this.attempt = answer.attempt;
    this.tries = answer.tries;
    this.due = answer.due;
    /** When it became ready again, in unix seconds; null on its first delivery. */
    this.ready = answer.ready ?? null;
    /** When it was added, in unix seconds; this and the id identify a life of the job. Null from an older service. */
    this.created = answer.created ?? null;
    this.ttr = answer.ttr;
    this.headers = answer.headers;
    /** The trace in which it was added, as 32 hex digits, from its header `traceparent`; null without one. */
    this.trace_id = TRACEPARENT.exec(answer.headers?.traceparent)?.[1] ?? null;
    /** Whether this is the last delivery. */
    this.last_try = answer.ttr === 0 || (answer.tries !== 0 && answer.attempt >= answer.tries);
  }
}

/** The handler no longer owns its job. `reason`: deleted, stale, expired or stopping. */
export class Lost extends Error {
  constructor(job, reason) {
    super(`${job.id}: ${reason}`);
    this.name = 'Lost';
    this.reason = reason;
  }
}

/** A job in the hands of a worker's handler. */
export class WorkerJob extends Job {
  #abort = new AbortController();

  /** @param {Job} job as popped */
  constructor(job) {
    super({ ...job, value: job.body });
  }

  /** Why the handler no longer owns the job: deleted, stale, expired or stopping; null while it does. */
  get lost() {
    return this.signal.reason?.reason ?? null;
  }

  /** Aborted, with a `Lost`, when the job is lost. */
  get signal() {
    return this.#abort.signal;
  }

  /** @throws {Lost} when the job is lost */
  check() {
    this.signal.throwIfAborted();
  }

  /** For the worker: mark the job as lost. The first reason stays. */
  lose(reason) {
    this.#abort.abort(new Lost(this, reason));
  }
}
