/** The worker, its options and events, and what its handlers throw. */
import type { ClientOptions } from './client.js';
import type { LossReason, WorkerJob } from './job.js';

export interface WorkerOptions extends Omit<ClientOptions, 'retry_for_s'> {
  /** Handlers at a time; default 10. */
  concurrency?: number;
  /** Default: host, pid and a random word. 1 to 128 characters. */
  name?: string;
  /** Seconds that a poll waits, above 0, 60 at most; default 20. */
  poll_s?: number;
  /** For what runs, when it is to stop; default 25. */
  grace_s?: number;
  /** Default 60; 0: no heartbeat. */
  heartbeat_s?: number;
  /** How long one handler's lease is kept alive; default 3600. */
  keep_alive_s?: number;
  /** For metrics; its errors are logged and do no harm. */
  on_event?: (...event: WorkerEvent) => unknown;
}

export class Worker {
  /** @throws {TypeError|RangeError} that names the option that cannot be */
  constructor(options: WorkerOptions);
  /**
   * Before run(): have the jobs of a topic done. The handler returns: finish. It throws: release, or as Retry and Bury
   * say.
   */
  job<T = unknown>(topic: string, handler: Handler<T>): void;
  /**
   * Work until stop(), SIGTERM or SIGINT; once. Gives whether all had finished in the grace.
   * @throws {RefusedError} that no repetition can help: of a bad topic name, say
   */
  run(): Promise<boolean>;
  /** Begin no new job; what runs may finish, for `grace_s`. */
  stop(): void;
}

export type Handler<T = unknown> = (job: WorkerJob<T>, context: { signal: AbortSignal }) => unknown;

/** Give the job back: due in `after` seconds, by default by its back-off. `attempt` false: this delivery was no try. */
export class Retry extends Error {
  constructor(how?: { after?: number; attempt?: boolean; reason?: string });
  readonly after: number | undefined;
  readonly attempt: boolean | undefined;
  readonly reason: string | undefined;
}

/** To the dead letters: no repetition can help. */
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

/** An event's name and fields; a comparison of the name tells TypeScript the fields. */
export type WorkerEvent = { [N in keyof WorkerEvents]: [name: N, fields: WorkerEvents[N]] }[keyof WorkerEvents];
