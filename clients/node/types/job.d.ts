/** A job as a pop gives it, and as a handler gets it. */

/** A delivery of a job. */
export class Job<T = unknown> {
  readonly id: string;
  readonly topic: string;
  readonly body: T;
  readonly lease: number;
  /** The deliveries that count, with this one. */
  readonly attempt: number;
  /** How many of them there may be; 0: no limit. */
  readonly tries: number;
  /** When it was due, in unix seconds. */
  readonly due: number;
  /** Seconds until it is handed out again; 0: never. */
  readonly ttr: number;
  readonly headers: Record<string, string> | null;
  /** No delivery follows this one. */
  readonly last_try: boolean;
}

export type LossReason = 'deleted' | 'stale' | 'expired' | 'stopping';

export class WorkerJob<T = unknown> extends Job<T> {
  /** Why the job is no longer this handler's; null while it is. */
  get lost(): LossReason | null;
  /** Aborted, with a `Lost`, when the job is lost. */
  get signal(): AbortSignal;
  /** @throws {Lost} when the job is lost */
  check(): void;
}

/** The job is no longer this handler's; a handler that throws it ends without a word to the service. */
export class Lost extends Error {
  constructor(job: Job, reason: LossReason);
  readonly reason: LossReason;
}
