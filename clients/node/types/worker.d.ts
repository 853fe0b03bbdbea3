/** The worker, its options and events, and the errors that its handlers throw. */
import type { ClientOptions } from './client.js';
import type { LossReason, WorkerJob } from './job.js';

export interface WorkerOptions extends Omit<ClientOptions, 'retry_for_s'> {
  /** The number of handlers that run at a time; default 10. */
  concurrency?: number;
  /** 1 to 128 characters; default: host, pid and a random word. */
  name?: string;
  /** Seconds for which a poll waits, above 0 and at most 60; default 20. */
  poll_s?: number;
  /** Seconds that running handlers get once the worker is to stop; default 25. */
  grace_s?: number;
  /** Seconds between heartbeats; 0: none; default 60. */
  heartbeat_s?: number;
  /** Seconds for which the lease of one handler is kept alive; default 3600. */
  keep_alive_s?: number;
  /** For metrics; its errors are logged and otherwise ignored. */
  on_event?: (...event: WorkerEvent) => unknown;
}

export class Worker {
  /** @throws {TypeError|RangeError} that names the invalid option */
  constructor(options: WorkerOptions);
  /**
   * Registers the handler of a topic's jobs; call it before run(). A handler that returns finishes its job. One that
   * throws releases it, except that Retry, Bury and Lost do what they say.
   */
  job<T = unknown>(topic: string, handler: Handler<T>): void;
  /**
   * Works until stop(), SIGTERM or SIGINT; call it once. Gives whether all jobs ended within the grace period.
   * @throws {RefusedError} that no retry can help, such as for an invalid topic name
   */
  run(): Promise<boolean>;
  /** Starts no new job; running handlers may finish, for `grace_s`. */
  stop(): void;
}

export type Handler<T = unknown> = (job: WorkerJob<T>, context: { signal: AbortSignal }) => unknown;

/**
 * Give the job back, due in `after` seconds, by default after the next step of its back-off. With `attempt` false, this
 * delivery does not count as a try.
 */
export class Retry extends Error {
  constructor(how?: { after?: number; attempt?: boolean; reason?: string });
  readonly after: number | undefined;
  readonly attempt: boolean | undefined;
  readonly reason: string | undefined;
}

/** Make the job a dead letter: no retry can help. */
export class Bury extends Error {
  constructor(reason?: string);
  readonly reason: string | undefined;
}

interface OfJob {
  topic: string;
  id: string;
}

export interface WorkerEvents {
  'worker.started': { worker: string };
  'worker.stopping': { worker: string };
  'worker.stopped': { worker: string };
  'worker.heartbeat': {
    worker: string;
    running: number;
    finished: number;
    failed: number;
    retried: number;
    buried: number;
    lost: number;
  };
  'job.started': OfJob & { attempt: number; late_s: number };
  'job.finished': OfJob & { seconds: number };
  'job.failed': OfJob & { seconds: number; reason: string };
  'job.retried': OfJob & { seconds: number; reason: string | null };
  'job.buried': OfJob & { seconds: number; reason: string | null };
  'job.lost': OfJob & { seconds: number; reason: LossReason };
  'job.returned': OfJob;
  'service.lost': { reason: string };
  'service.back': { seconds: number };
}

/** An event's name and fields; comparing the name narrows the type of the fields. */
export type WorkerEvent = { [N in keyof WorkerEvents]: [name: N, fields: WorkerEvents[N]] }[keyof WorkerEvents];
