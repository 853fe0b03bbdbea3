/** The client's methods and options. Times are seconds, where nothing else is said. */
import type { Job } from './job.js';
import type {
  AddOptions, Body, BuryOptions, CallOptions, Command, DeleteOptions, FinishOptions, PauseOptions, PeekOptions,
  PopOptions, PurgeOptions, ReleaseOptions, StatsOptions, TopicsOptions, TouchOptions, UpdateOptions,
} from './commands.js';
import type {
  AddAnswer, AnswerTo, BuryAnswer, DeleteAnswer, FinishAnswer, GetAnswer, KickAnswer, KickTopicAnswer, LeaveAnswer,
  MoveAnswer, PauseAnswer, PeekAnswer, PurgeAnswer, ResumeAnswer, StatsAnswer, TopicsAnswer, TouchAnswer,
  UpdateAnswer,
} from './answers.js';
import type { JobQueueError } from './errors.js';

export interface ClientOptions {
  /** Of the service, with a path prefix too: `http://localhost:8000`. */
  url: string | URL;
  /** For an answer, beyond a pop's `wait`; default 10. */
  timeout_s?: number;
  /** For a connection; default 3. */
  connect_timeout_s?: number;
  /** How long to go on after the first failure; 0: not at all; default 10. */
  retry_for_s?: number;
  /** Sent with each request. */
  headers?: Record<string, string>;
}

/**
 * Every method throws RefusedError, UnreachableError, and, before anything is sent, TypeError for what cannot be JSON.
 * An abort of `signal` closes the connection and rejects with the signal's reason.
 */
export class Client {
  /** @throws {TypeError|RangeError} that names the option that cannot be */
  constructor(options: ClientOptions);
  add(topic: string, body: Body, options?: AddOptions): Promise<AddAnswer>;
  /** A job, or null. Of several topics, the first that has one. */
  pop<T = unknown>(topic: string | readonly string[], options?: PopOptions): Promise<Job<T> | null>;
  /** Up to `count` jobs, 1 to 1,000. */
  popMany<T = unknown>(topic: string | readonly string[], count: number, options?: PopOptions): Promise<Job<T>[]>;
  finish(job: Job | string, options?: FinishOptions): Promise<FinishAnswer>;
  touch(job: Job | string, options?: TouchOptions): Promise<TouchAnswer>;
  release(job: Job | string, options?: ReleaseOptions): Promise<MoveAnswer>;
  bury(job: Job | string, options?: BuryOptions): Promise<BuryAnswer>;
  delete(id: string, options?: DeleteOptions): Promise<DeleteAnswer>;
  get<T = unknown>(id: string, options?: CallOptions): Promise<GetAnswer<T>>;
  run(id: string, options?: CallOptions): Promise<MoveAnswer>;
  update(id: string, options: UpdateOptions): Promise<UpdateAnswer>;
  kick(id: string, options?: CallOptions): Promise<KickAnswer>;
  /** Up to `count` dead jobs, 1 to 1,000; default 1. */
  kickTopic(topic: string, count?: number, options?: CallOptions): Promise<KickTopicAnswer>;
  peek<T = unknown>(topic: string, options?: PeekOptions): Promise<PeekAnswer<T>>;
  topics(options?: TopicsOptions): Promise<TopicsAnswer>;
  stats(options?: StatsOptions): Promise<StatsAnswer>;
  pause(topic: string, options?: PauseOptions): Promise<PauseAnswer>;
  resume(topic: string, options?: CallOptions): Promise<ResumeAnswer>;
  purge(topic: string, options?: PurgeOptions): Promise<PurgeAnswer>;
  /** The waiting pops of this worker end now, with what they find. */
  leave(worker: string, options?: CallOptions): Promise<LeaveAnswer>;
  /** Up to 1,000 commands in one request: of each its answer, or its error, not thrown. */
  batch<C extends readonly Command[] | []>(
    commands: C,
    options?: CallOptions,
  ): Promise<{ -readonly [K in keyof C]: AnswerTo<C[K]> | JobQueueError }>;
  /** Closes the connections; calls that are on their way fail. A program ends without it, too. */
  close(): void;
}
