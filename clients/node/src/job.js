/** A job as a pop gives it, and as a worker's handler gets it. */

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
    this.ttr = answer.ttr;
    this.headers = answer.headers;
    /** No delivery follows this one. */
    this.last_try = answer.ttr === 0 || (answer.tries !== 0 && answer.attempt >= answer.tries);
  }
}

/** The job is no longer this handler's. `reason`: deleted, stale, expired or stopping. */
export class Lost extends Error {
  constructor(job, reason) {
    super(`${job.id}: ${reason}`);
    this.name = 'Lost';
    this.reason = reason;
  }
}

/** A job that a worker's handler runs. */
export class WorkerJob extends Job {
  #abort = new AbortController();

  /** @param {Job} job as it was popped */
  constructor(job) {
    super({ ...job, value: job.body });
  }

  /** Why it is no longer this handler's: deleted, stale, expired or stopping; null while it is. */
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

  /** For the worker: the job is lost. The first reason holds. */
  lose(reason) {
    this.#abort.abort(new Lost(this, reason));
  }
}
