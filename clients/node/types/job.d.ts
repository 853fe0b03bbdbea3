/** A job as a pop delivers it, and as a handler receives it. */

/** A delivery of a job. */
export class Job<T = unknown> {
  readonly id: string;
  readonly topic: string;
  readonly body: T;
  readonly lease: number;
  /** The number of deliveries that count, including this one. */
  readonly attempt: number;
  /** The limit of `attempt`; 0: none. */
  readonly tries: number;
  /** When it was due, in unix seconds. */
  readonly due: number;
  /** When it became ready again, in unix seconds; null on its first delivery. */
  readonly ready: number | null;
  /** When it was added, in unix seconds: with its id, this names its life; null from an older service. */
  readonly created: number | null;
  /** Seconds until it is delivered again; 0: never. */
  readonly ttr: number;
  readonly headers: Record<string, string> | null;
  /** The trace in which it was added, as 32 hex digits, from its header `traceparent`; null without one. */
  readonly trace_id: string | null;
  /** Whether this is the last delivery. */
  readonly last_try: boolean;
}

export type LossReason = 'deleted' | 'stale' | 'expired' | 'stopping';

export class WorkerJob<T = unknown> extends Job<T> {
  /** Why the handler no longer owns the job; null while it does. */
  get lost(): LossReason | null;
  /** Aborted, with a `Lost`, when the job is lost. */
  get signal(): AbortSignal;
  /** @throws {Lost} when the job is lost */
  check(): void;
}

/** The handler no longer owns its job. A handler that throws it ends, and nothing is sent to the service. */
export class Lost extends Error {
  constructor(job: Job, reason: LossReason);
  readonly reason: LossReason;
}
