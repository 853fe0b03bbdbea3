/** The worker, its options and events, and the errors that its handlers throw. */
import type { Addresses, ClientOptions } from './client.js';
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
  /** Stops in order after this number of jobs; by default never. */
  max_jobs?: number;
  /** Stops in order after this number of seconds; by default never. */
  max_time_s?: number;
  /** Stops in order after a job that leaves the process with more than this resident, in MiB; by default never. */
  memory_mb?: number;
  /** Where the log goes: by default lines of JSON on standard error. A console, pino or winston will do. */
  logger?: Logger;
  /** For metrics. As of all hooks, its errors are logged and otherwise ignored. */
  on_event?: (...event: WorkerEvent) => unknown;
  /** A handler threw an error other than Retry, Bury and Lost. */
  on_error?: (error: unknown, job: WorkerJob) => unknown;
  /** The job is a dead letter now: its tries or its ttl ran out, or its handler threw Bury. `error`: what it threw. */
  on_death?: (job: WorkerJob, reason: string | null, error: unknown) => unknown;
}

/** A logger. A line is an object with `message`, the event's name, and the event's fields. */
export interface Logger {
  info(line: object): unknown;
  error(line: object): unknown;
}

export class Worker {
  /** @throws {TypeError|RangeError} that names the invalid option */
  constructor(url: string | URL, options?: WorkerOptions);
  constructor(options: Addresses & WorkerOptions);
  /**
   * Registers the handler of a topic's jobs; call it before run(). A handler that returns finishes its job. One that
   * throws releases it, except that Retry, Bury and Lost do what they say.
   */
  job<T = unknown>(topic: string, handler: Handler<T>): void;
  /**
   * Adds a middleware around every handler; call it before run(). The first one added is the outermost. What it throws,
   * or lets pass, is the outcome of the job.
   */
  use(middleware: Middleware): void;
  /**
   * Works until stop(), SIGTERM, SIGINT or a limit; call it once. Gives whether all jobs ended within the grace period.
   * @throws {RefusedError} that no retry can help: an invalid topic name, a topic that the token may not pop, or a token
   *   that was refused for a minute
   */
  run(): Promise<boolean>;
  /** Starts no new job; running handlers may finish, for `grace_s`. */
  stop(): void;
}

export type Handler<T = unknown> = (job: WorkerJob<T>, context: { signal: AbortSignal }) => unknown;

export type Middleware = (job: WorkerJob, next: () => Promise<unknown>) => unknown;

/**
 * Give the job back, due in `after` seconds, by default after the next step of its back-off. With `attempt` false, this
 * delivery does not count as a try; otherwise it is a dead letter after its last one.
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
  attempt: number;
}

interface Ended extends OfJob {
  /** For which the handler ran. */
  seconds: number;
  reason: string | null;
  /** What the handler threw. */
  error?: unknown;
}

/** How many deliveries ended in which way since the start. One that died is among the failed, too, if its handler threw. */
interface Sums {
  finished: number;
  failed: number;
  retried: number;
  buried: number;
  died: number;
  /** Deliveries whose lease ended before their handler did among them. */
  lost: number;
}

export interface WorkerEvents {
  'worker.started': { worker: string };
  'worker.stopping': { worker: string; reason: 'signal' | 'stop' | 'max_jobs' | 'max_time' | 'memory' };
  'worker.stopped': { worker: string } & Sums;
  'worker.heartbeat': { worker: string; running: number } & Sums;
  /** `late_s`: seconds since it was due, or ready again, by this machine's clock. */
  'job.started': OfJob & { late_s: number };
  'job.finished': OfJob & { seconds: number };
  'job.failed': Ended & { reason: string };
  'job.retried': Ended;
  'job.buried': Ended;
  /** A dead letter now: its tries or its ttl ran out. */
  'job.died': Ended;
  /** Its lease ended before its handler did. */
  'job.expired': OfJob & { seconds: number };
  'job.lost': OfJob & { seconds: number; reason: Exclude<LossReason, 'expired'> };
  'job.returned': OfJob;
  'service.lost': { reason: string };
  'service.back': { seconds: number };
}

/** An event's name and fields; comparing the name narrows the type of the fields. */
export type WorkerEvent = { [N in keyof WorkerEvents]: [name: N, fields: WorkerEvents[N]] }[keyof WorkerEvents];
