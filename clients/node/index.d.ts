/** Types of jobqueue's client and worker. Words, ranges and meanings: docs/protocol.md. Times are seconds. */

export type JobState = 'delayed' | 'ready' | 'reserved' | 'dead' | 'finished' | 'deleted';

/** What JSON can say; checked when it is sent. */
export type Body = {} | null;

// -- the client

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
  /** The waiting pops of this worker end now, empty. */
  leave(worker: string, options?: CallOptions): Promise<LeaveAnswer>;
  /** Up to 1,000 commands in one request: of each its answer, or its error, not thrown. */
  batch<C extends readonly Command[] | []>(
    commands: C,
    options?: CallOptions,
  ): Promise<{ -readonly [K in keyof C]: AnswerTo<C[K]> | JobQueueError }>;
  /** Closes the connections; calls that are on their way fail. A program ends without it, too. */
  close(): void;
}

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

// -- the worker

export interface WorkerOptions extends Omit<ClientOptions, 'retry_for_s'> {
  /** Handlers at a time; default 10. */
  concurrency?: number;
  /** Default: host, pid and a random word. At most 128 characters. */
  name?: string;
  /** Seconds that a poll waits, 60 at most; default 20. */
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
  constructor(options: WorkerOptions);
  /** Have the jobs of a topic done. The handler returns: finish. It throws: release, or as Retry and Bury say. */
  job<T = unknown>(topic: string, handler: Handler<T>): void;
  /**
   * Work until stop(), SIGTERM or SIGINT; once. Gives whether all that was begun has ended.
   * @throws {RefusedError} that no repetition can help: of a bad topic name, say
   */
  run(): Promise<boolean>;
  /** Begin no new job; what runs may finish, for `grace_s`. */
  stop(): void;
}

export type Handler<T = unknown> = (job: WorkerJob<T>, context: { signal: AbortSignal }) => unknown;

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

// -- the commands' fields

export interface AddFields {
  id?: string;
  /** Due so many seconds from now. */
  delay?: number;
  /** Due at this time, instead of `delay`: a Date, unix seconds, or RFC 3339 text. */
  at?: Date | number | string;
  ttr?: number;
  /** 0 to 9; higher is sooner. */
  priority?: number;
  tries?: number;
  backoff?: readonly number[];
  ttl?: number;
  retention?: number;
  if_exists?: 'keep' | 'reject' | 'replace';
  headers?: Record<string, string>;
  tags?: readonly string[];
  durability?: 'local';
}

export interface PopFields {
  /** Seconds to wait for a job, 0 to 60. */
  wait?: number;
  ttr?: number;
  worker?: string;
}

export interface FinishFields {
  lease?: number;
  durability?: 'local';
}

export interface TouchFields {
  lease?: number;
  ttr?: number;
}

export interface ReleaseFields {
  lease?: number;
  delay?: number;
  attempt?: boolean;
  reason?: string;
}

export interface BuryFields {
  lease?: number;
  reason?: string;
}

export interface DeleteFields {
  durability?: 'local';
}

export interface UpdateFields {
  delay?: number;
  at?: Date | number | string;
  body?: Body;
  priority?: number;
  ttl?: number;
  durability?: 'local';
}

type LiveState = 'delayed' | 'ready' | 'reserved' | 'dead';

export interface PeekFields {
  state?: LiveState;
  cursor?: string | null;
  count?: number;
}

export interface TopicsFields {
  pattern?: string;
  cursor?: string | null;
}

export interface StatsFields {
  topic?: string;
}

export interface PauseFields {
  seconds?: number;
}

export interface PurgeFields {
  state?: LiveState;
  cursor?: string | null;
}

export interface CallOptions {
  signal?: AbortSignal;
}

export type AddOptions = AddFields & CallOptions;
export type PopOptions = PopFields & CallOptions;
export type FinishOptions = FinishFields & CallOptions;
export type TouchOptions = TouchFields & CallOptions;
export type ReleaseOptions = ReleaseFields & CallOptions;
export type BuryOptions = BuryFields & CallOptions;
export type DeleteOptions = DeleteFields & CallOptions;
export type UpdateOptions = UpdateFields & CallOptions;
export type PeekOptions = PeekFields & CallOptions;
export type TopicsOptions = TopicsFields & CallOptions;
export type StatsOptions = StatsFields & CallOptions;
export type PauseOptions = PauseFields & CallOptions;
export type PurgeOptions = PurgeFields & CallOptions;

/** A member of a batch, as the protocol has it. */
export type Command =
  | ({ command: 'add'; topic: string; body: Body } & AddFields)
  | ({ command: 'pop'; topic?: string; topics?: readonly string[]; count?: number } & PopFields)
  | ({ command: 'finish'; id: string } & FinishFields)
  | ({ command: 'touch'; id: string } & TouchFields)
  | ({ command: 'release'; id: string } & ReleaseFields)
  | ({ command: 'bury'; id: string } & BuryFields)
  | ({ command: 'delete'; id: string } & DeleteFields)
  | ({ command: 'update'; id: string } & UpdateFields)
  | { command: 'get' | 'run'; id: string }
  | { command: 'kick'; id?: string; topic?: string; count?: number }
  | ({ command: 'peek'; topic: string } & PeekFields)
  | ({ command: 'topics' } & TopicsFields)
  | ({ command: 'stats' } & StatsFields)
  | ({ command: 'pause'; topic: string } & PauseFields)
  | { command: 'resume'; topic: string }
  | ({ command: 'purge'; topic: string } & PurgeFields)
  | { command: 'leave'; worker: string };

// -- the answers

interface Answer {
  success: true;
}

interface AnswerOfJob extends Answer {
  id: string;
  state: JobState;
}

export interface AddedJob {
  id: string;
  state: JobState;
  /** In unix seconds. */
  due: number;
  result: 'created' | 'existing' | 'replaced';
}

export interface AddAnswer extends Answer, AddedJob {
  durability?: 'local';
  /** Of a virtual topic: its name. `state`, `due` and `result` are then those of each of `jobs`, and not here. */
  topic?: string;
  jobs?: (AddedJob & { topic: string })[];
}

/** Of a pop in a batch. */
export interface PopAnswer<T = unknown> extends Answer {
  id?: string | null;
  value?: T | null;
  state?: 'reserved' | 'finished';
  topic?: string;
  lease?: number;
  attempt?: number;
  tries?: number;
  due?: number;
  ttr?: number;
  headers?: Record<string, string> | null;
  /** With `count`: the jobs. */
  jobs?: PoppedJob<T>[];
}

export interface PoppedJob<T = unknown> {
  id: string;
  value: T;
  state: 'reserved' | 'finished';
  topic: string;
  lease: number;
  attempt: number;
  tries: number;
  due: number;
  ttr: number;
  headers: Record<string, string> | null;
}

export interface FinishAnswer extends AnswerOfJob {
  durability?: 'local';
}

/** `state`: what it was before. */
export interface DeleteAnswer extends AnswerOfJob {
  durability?: 'local';
}

export interface TouchAnswer extends AnswerOfJob {
  /** The end of the lease, in unix seconds. */
  until: number;
}

/** Of release and run. */
export interface MoveAnswer extends AnswerOfJob {
  due: number;
}

export interface UpdateAnswer extends MoveAnswer {
  durability?: 'local';
}

export interface BuryAnswer extends AnswerOfJob {}

export interface KickAnswer extends AnswerOfJob {
  count: number;
}

export interface KickTopicAnswer extends Answer {
  topic: string;
  count: number;
}

export interface JobDescription<T = unknown> {
  id: string;
  state: JobState;
  topic: string;
  /** Null for a job that ended. */
  value: T | null;
  created: number;
  due: number;
  priority: number;
  ttr: number;
  ttl: number | null;
  retention: number;
  tries: number;
  attempt: number;
  deliveries: number;
  backoff: number[];
  headers: Record<string, string> | null;
  tags: string[] | null;
  lease?: number;
  worker?: string | null;
  reason?: string | null;
  cause?: 'tries' | 'ttl' | 'buried';
  until?: number;
  ready_since?: number;
  reserved_until?: number;
  dead_since?: number;
}

export interface GetAnswer<T = unknown> extends Answer, JobDescription<T> {}

export interface PeekAnswer<T = unknown> extends Answer {
  topic: string;
  jobs: JobDescription<T>[];
  /** For the next call; null: that was all. */
  cursor: string | null;
}

export type Counts = Record<LiveState, number>;

export interface TopicsAnswer extends Answer {
  topics: { topic: string; counts: Counts; paused: boolean; paused_until?: number | null }[];
  cursor: string | null;
}

export interface StatsAnswer extends Answer {
  /** Null: all together. */
  topic: string | null;
  counts: Counts;
  totals: Record<string, number>;
  /** For how many seconds the oldest ready job is ready. */
  oldest_ready: number | null;
  due: Record<string, number>;
}

export interface PauseAnswer extends Answer {
  topic: string;
  /** In unix seconds; null: until it is resumed. */
  until: number | null;
}

export interface ResumeAnswer extends Answer {
  topic: string;
  was_paused: boolean;
}

export interface PurgeAnswer extends Answer {
  topic: string;
  count: number;
  cursor: string | null;
}

export interface LeaveAnswer extends Answer {
  worker: string;
}

interface Answers {
  add: AddAnswer;
  pop: PopAnswer;
  finish: FinishAnswer;
  touch: TouchAnswer;
  release: MoveAnswer;
  bury: BuryAnswer;
  delete: DeleteAnswer;
  update: UpdateAnswer;
  get: GetAnswer;
  run: MoveAnswer;
  kick: KickAnswer | KickTopicAnswer;
  peek: PeekAnswer;
  topics: TopicsAnswer;
  stats: StatsAnswer;
  pause: PauseAnswer;
  resume: ResumeAnswer;
  purge: PurgeAnswer;
  leave: LeaveAnswer;
}

/** What a command of a batch is answered with. */
export type AnswerTo<C> = C extends { command: infer N extends keyof Answers } ? Answers[N] : never;

// -- the errors

export class JobQueueError extends Error {}

/** No answer of a job queue came: no connection, a time-out, a broken connection, a proxy's page. */
export class UnreachableError extends JobQueueError {
  constructor(message: string, about: { maybe_done: boolean; status?: number | null; retry_after?: number | null });
  /** Whether the service may have done it all the same. */
  readonly maybe_done: boolean;
  /** Of the proxy's page, else null. */
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
  retry_after?: number;
}

/** The service said no. Each code has its class; a code that this version does not know is a plain RefusedError. */
export class RefusedError extends JobQueueError {
  constructor(answer: RefusedAnswer, status: number | null, retry_after: number | null);
  readonly code: string | null;
  readonly status: number | null;
  readonly state: JobState | null;
  readonly field: string | null;
  /** Seconds after which to ask again. */
  readonly retry_after: number | null;
  /** All that the service said. */
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
export class ForbiddenError extends RefusedError {}
export class NotFoundError extends RefusedError {}
export class NoSuchPathError extends RefusedError {}
export class MethodNotAllowedError extends RefusedError {}
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
