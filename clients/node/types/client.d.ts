/** The client's methods and options. */
import type { Job } from './job.js';
import type {
  ActionsOptions, AddOptions, Body, BuryOptions, CallOptions, Command, DeleteOptions, ExplainOptions, FiguresOptions,
  FindOptions, FinishOptions, ForecastOptions, KeepsBody, OperationOptions, PauseOptions, PeekOptions, PopOptions, PurgeOptions,
  ReleaseOptions, ScheduleOptions, SchedulesOptions, SearchOptions, StatsOptions, TokenOptions, TopicsOptions, TouchOptions,
  UpdateOptions, WorkersOptions,
} from './commands.js';
import type {
  ActionsAnswer, AddAnswer, AnswerTo, BuryAnswer, DeleteAnswer, ExplainAnswer, FiguresAnswer, FindAnswer, FinishAnswer,
  ForecastAnswer, GetAnswer, HealthAnswer, InstancesAnswer, KickAnswer, KickTopicAnswer, LeaveAnswer, MoveAnswer,
  OperationAnswer, OperationListAnswer, OperationPlanAnswer,
  PauseAnswer, PeekAnswer, PurgeAnswer, ResumeAnswer, ScheduleAnswer, SchedulesAnswer, SearchBegunAnswer, SettingsAnswer, StatsAnswer,
  TokenAnswer, TokenIssuedAnswer, TokenListAnswer, TokenTestAnswer, TopicsAnswer, TouchAnswer,
  UnscheduleAnswer, UpdateAnswer, WhoamiAnswer, WorkersAnswer,
} from './answers.js';
import type { JobQueueError } from './errors.js';

/** Where the service is: one address, or several instances of it, of which one that fails is left out for a while. */
export type Addresses =
  | {
    /** The service's URL, including its path prefix if it has one: `http://localhost:8000`. */
    url: string | URL;
    urls?: never;
  }
  | { urls: readonly (string | URL)[]; url?: never };

/** Times are seconds. */
export interface ClientOptions {
  /** Time to wait for an answer, on top of a pop's `wait`; default 10. */
  timeout_s?: number;
  /** Time to wait for a connection; default 3. */
  connect_timeout_s?: number;
  /** How long to retry after the first failure; 0: only at another address; default 1.5. */
  retry_for_s?: number;
  /** Sent with every request. */
  headers?: Record<string, string>;
  /** Sent as `Authorization: Bearer …`; default: that of the file, or JOBQUEUE_TOKEN. One with a typing error throws. */
  token?: string | undefined;
  /** A file that holds the token; it is read again when that is refused. */
  token_file?: string | undefined;
  /** A PEM file with the authorities whose certificates are accepted; default: those of Node. All files are read once. */
  ca_file?: string;
  /** A PEM file with the client's certificate, and perhaps its key. */
  cert_file?: string;
  /** A PEM file with the key of `cert_file`. */
  key_file?: string;
}

/**
 * Every method throws RefusedError, UnreachableError, and, before anything is sent, TypeError for a value that JSON
 * cannot represent.
 * An abort of `signal` closes the connection and rejects with the signal's reason.
 */
export class Client {
  /** @throws {TypeError|RangeError} that names the invalid option */
  constructor(url: string | URL, options?: ClientOptions);
  constructor(options: Addresses & ClientOptions);
  add(topic: string, body: Body, options?: AddOptions): Promise<AddAnswer>;
  /** With `undefined`, a job that is there keeps its body. */
  add(topic: string, body: Body | undefined, options: AddOptions & KeepsBody): Promise<AddAnswer>;
  /** Adds a job again and again: `every` so many seconds, or by `cron`. The same definition again changes nothing. */
  schedule(name: string, topic: string, body: Body, options: ScheduleOptions): Promise<ScheduleAnswer>;
  /** Removes a schedule; the jobs that it has added stay. */
  unschedule(name: string, options?: CallOptions): Promise<UnscheduleAnswer>;
  /** A page of the schedules, with their next times. */
  schedules<T = unknown>(options?: SchedulesOptions): Promise<SchedulesAnswer<T>>;
  /** A job, or null. Of several topics, the first that has a ready job is used. */
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
  /** Why a job is where it is, and what happened to it. */
  explain(id: string, options?: ExplainOptions): Promise<ExplainAnswer>;
  kick(id: string, options?: CallOptions): Promise<KickAnswer>;
  /** Makes up to `count` dead jobs ready again, 1 to 1,000; default 1. */
  kickTopic(topic: string, count?: number, options?: CallOptions): Promise<KickTopicAnswer>;
  peek<T = unknown>(topic: string, options?: PeekOptions): Promise<PeekAnswer<T>>;
  /** Jobs of a topic whose ids begin with a prefix, without bodies; a page with a cursor may be empty. */
  find(prefix: string, topic: string, options?: FindOptions): Promise<FindAnswer>;
  /** Jobs of all topics: the search goes on in the background, and `operation('get', …)` lists what it has found. */
  find(prefix: string, topic?: null, options?: SearchOptions): Promise<SearchBegunAnswer>;
  topics(options?: TopicsOptions): Promise<TopicsAnswer>;
  stats(options?: StatsOptions): Promise<StatsAnswer>;
  /** How many jobs fall due when, and what schedules are going to add. */
  forecast(options?: ForecastOptions): Promise<ForecastAnswer>;
  /** Rates and lateness over time, over all instances. */
  figures(options?: FiguresOptions): Promise<FiguresAnswer>;
  /** Who polls, a topic or any, and with how many jobs in hand. */
  workers(options?: WorkersOptions): Promise<WorkersAnswer>;
  /** The processes of the service. */
  instances(options?: CallOptions): Promise<InstancesAnswer>;
  /** What is wrong with the service, or may become so. */
  health(options?: CallOptions): Promise<HealthAnswer>;
  pause(topic: string, options?: PauseOptions): Promise<PauseAnswer>;
  resume(topic: string, options?: CallOptions): Promise<ResumeAnswer>;
  purge(topic: string, options?: PurgeOptions): Promise<PurgeAnswer>;
  /** Counts the jobs that match a filter, and changes none. */
  operation(action: 'plan', options: OperationOptions): Promise<OperationPlanAnswer>;
  /** Changes the jobs of a plan in the background, or steers that. */
  operation(action: 'start' | 'pause' | 'resume' | 'cancel' | 'get', options: OperationOptions): Promise<OperationAnswer>;
  /** The newest 100 operations. */
  operation(action: 'list', options?: CallOptions): Promise<OperationListAnswer>;
  /** Ends the waiting pops of this worker now, with what they have found. */
  leave(worker: string, options?: CallOptions): Promise<LeaveAnswer>;
  /** What people and operators did, the newest first. */
  actions(options?: ActionsOptions): Promise<ActionsAnswer>;
  /** The settings of the service, and where each came from. */
  settings(options?: CallOptions): Promise<SettingsAnswer>;
  /** What the token of this client may do, and until when. */
  whoami(options?: CallOptions): Promise<WhoamiAnswer>;
  /** A new token, or a new secret of one: the answer is the only place that shows it. */
  token(action: 'create' | 'rotate', options: TokenOptions): Promise<TokenIssuedAnswer>;
  token(action: 'show' | 'revoke', options: TokenOptions): Promise<TokenAnswer>;
  token(action: 'list', options?: CallOptions): Promise<TokenListAnswer>;
  token(action: 'test', options: TokenOptions): Promise<TokenTestAnswer>;
  /** Up to 1,000 commands in one request. Gives each one's answer, or its error, which is not thrown. */
  batch<C extends readonly Command[] | []>(
    commands: C,
    options?: CallOptions,
  ): Promise<{ -readonly [K in keyof C]: AnswerTo<C[K]> | JobQueueError }>;
  /** Closes the connections; calls in flight fail. Not needed for a program to exit. */
  close(): void;
}
