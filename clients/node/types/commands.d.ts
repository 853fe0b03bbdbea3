/** The fields of the commands; docs/protocol.md describes their ranges, defaults and meanings. Times are seconds. */
import type { LiveState } from './answers.js';

/**
 * A value that JSON can represent; checked before it is sent. As with JSON.stringify, `undefined` is dropped from an
 * object, and `null` in an array.
 */
export type Body = {} | null;

export interface AddFields {
  id?: string;
  /** Seconds (not milliseconds) from now until it is due: 1800 is half an hour. */
  delay?: number;
  /** Due at this time, instead of `delay`: a Date, unix seconds, or RFC 3339 text. */
  at?: Date | number | string;
  /** Up to so many seconds later than that, by the id: jobs of one time are spread evenly. */
  spread?: number;
  ttr?: number;
  /** 0 to 9; 9 comes first. */
  priority?: number;
  /** The number of deliveries after which it is a dead letter; 0: no limit. */
  tries?: number;
  /** Seconds from each failed delivery to the next; by default the service's `default_backoff_s`; []: none; also `15,30`. */
  backoff?: readonly number[] | string;
  /** Seconds after `due` at which it becomes a dead letter. */
  ttl?: number;
  /** Seconds for which its id is remembered once it has ended. */
  retention?: number;
  /**
   * What to do if there is a job of this id; `renew` replaces one that has ended or is dead, `later` and `sooner` move
   * a delayed one in that direction only.
   */
  if_exists?: 'keep' | 'reject' | 'replace' | 'renew' | 'later' | 'sooner';
  /** Jobs of a topic with the same key run one after the other, in the order of their due times. */
  key?: string;
  headers?: Record<string, string>;
  tags?: readonly string[];
  durability?: 'local' | 'replicated' | 'fsynced';
}

/** Of an add that needs no body where there is one to keep. */
export interface KeepsBody {
  if_exists: 'later' | 'sooner';
}

/** The schedule of a job: give either `every` or `cron`. */
export interface ScheduleFields {
  /** Seconds (not milliseconds) from one occurrence to the next. */
  every?: number;
  /** Where `every` counts from: a Date, unix seconds, or RFC 3339 text; default: now. */
  start?: Date | number | string;
  /** Minute, hour, day of the month, month, day of the week: `0 9 * * MON-FRI`; or six fields, with seconds first. */
  cron?: string;
  /** The time zone of `cron`, such as Europe/Berlin; default: UTC. */
  zone?: string;
  /** Seconds by which an occurrence is due later at most. */
  jitter?: number;
  /** Which occurrences are made that could not be made in time; default: the last one. */
  catch_up?: 'none' | 'last' | 'all';
  /** `skip`: no occurrence while the last one is delayed, ready or reserved. */
  overlap?: 'allow' | 'skip';
  paused?: boolean;
  ttr?: number;
  priority?: number;
  tries?: number;
  backoff?: readonly number[] | string;
  ttl?: number;
  retention?: number;
  headers?: Record<string, string>;
  tags?: readonly string[];
  durability?: 'local' | 'replicated' | 'fsynced';
}

export interface SchedulesFields {
  /** With `*` for any characters and `?` for one. */
  pattern?: string;
  cursor?: string | null;
}

export interface PopFields {
  /** Seconds to wait for a job, 0 to 60. */
  wait?: number;
  /** Seconds for which the jobs are reserved, instead of their own. */
  ttr?: number;
  worker?: string;
}

export interface FinishFields {
  lease?: number;
  durability?: 'local' | 'replicated' | 'fsynced';
}

export interface TouchFields {
  lease?: number;
  ttr?: number;
}

export interface ReleaseFields {
  lease?: number;
  /** Seconds from now until it is due; by default the next step of its back-off. */
  delay?: number;
  attempt?: boolean;
  reason?: string;
}

export interface BuryFields {
  lease?: number;
  reason?: string;
}

export interface DeleteFields {
  durability?: 'local' | 'replicated' | 'fsynced';
}

export interface UpdateFields {
  /** Seconds from now until it is due. */
  delay?: number;
  at?: Date | number | string;
  body?: Body;
  priority?: number;
  ttl?: number;
  durability?: 'local' | 'replicated' | 'fsynced';
}

export interface ExplainFields {
  /** The life that is to be explained: 1 is the first; or when it was created, in unix seconds; default: the newest. */
  life?: number | 'all';
}

export interface PeekFields {
  state?: LiveState;
  cursor?: string | null;
  count?: number;
  shard?: number;
  /** False: without the bodies of the jobs. */
  body?: boolean;
  /** Only jobs whose time is this or later, delayed, reserved or dead; needs `state`. */
  from?: Date | number | string;
}

export interface FindFields {
  state?: LiveState;
  cursor?: string | null;
  count?: number;
}

export interface TopicsFields {
  pattern?: string;
  cursor?: string | null;
}

export interface WorkersFields {
  topic?: string;
}

export interface StatsFields {
  topic?: string;
}

export interface ForecastFields {
  topic?: string;
  /** How many hours ahead, 1 to 744; default 24. */
  hours?: number;
}

export interface FiguresFields {
  topic?: string;
  /** A Date, unix seconds, or RFC 3339 text; default: an hour before `until`. */
  since?: Date | number | string;
  /** Default: now. */
  until?: Date | number | string;
  /** The width of a bin in seconds, a multiple of 60; default 60. */
  step?: number;
}

export interface PauseFields {
  seconds?: number;
}

export interface PurgeFields {
  state?: LiveState;
  cursor?: string | null;
}

/** Which jobs an operation takes: those that match all that is given. */
export interface Filter {
  /** A topic, or a pattern with `*` and `?`. */
  topic?: string;
  state?: LiveState;
  /** How their ids begin. */
  prefix?: string;
  /** Of dead letters. */
  cause?: 'tries' | 'ttl' | 'buried';
  /** A part of it. */
  reason?: string;
  tag?: string;
  /** Each time: a Date, unix seconds, or RFC 3339 text. */
  died_from?: Date | number | string;
  died_to?: Date | number | string;
  due_from?: Date | number | string;
  due_to?: Date | number | string;
  created_from?: Date | number | string;
  created_to?: Date | number | string;
}

/** Of the command `operation`; which of them a `do` takes, docs/protocol.md says. */
export interface OperationFields {
  kind?: 'kick' | 'delete' | 'run' | 'reschedule' | 'find';
  filter?: Filter;
  /** Of a reschedule: how many seconds later the jobs are due; below 0: earlier. */
  shift?: number;
  /** When they are due, instead of `shift`: a Date, unix seconds, or RFC 3339 text. */
  at?: Date | number | string;
  spread?: number;
  /** Of a start: the id of the plan, */
  plan?: string;
  /** and its `count`. */
  expect?: number;
  /** Jobs a second. */
  rate?: number;
  /** The id of its plan. */
  operation?: string;
}

export interface ActionsFields {
  /** Unix seconds. */
  since?: number;
  /** Only what this actor did. */
  by?: string;
  cursor?: string | null;
  count?: number;
}

/** Of the command `token`; which of them an action takes, docs/protocol.md says. */
export interface TokenFields {
  /** The 8 characters of the token that are no secret. */
  id?: string;
  name?: string;
  rights?: readonly string[];
  /** Patterns with `*` and `?`; none: all topics. */
  topics?: readonly string[];
  /** Unix seconds, RFC 3339 text, or `never`; default: in 90 days. */
  expires?: number | string;
  /** Commands a second. */
  rate?: number;
  burst?: number;
  /** Of bodies, a second. */
  bytes?: number;
  waits?: number;
  own_ids?: boolean;
  certificate?: string;
  /** Seconds for which the old secret holds, too. */
  keep?: number;
  /** What is tested: whether it may do this, */
  right?: string;
  /** and reach this topic. */
  topic?: string;
}

export interface CallOptions {
  signal?: AbortSignal;
}

export type AddOptions = AddFields & CallOptions;
export type ScheduleOptions = ScheduleFields & CallOptions;
export type SchedulesOptions = SchedulesFields & CallOptions;
export type PopOptions = PopFields & CallOptions;
export type FinishOptions = FinishFields & CallOptions;
export type TouchOptions = TouchFields & CallOptions;
export type ReleaseOptions = ReleaseFields & CallOptions;
export type BuryOptions = BuryFields & CallOptions;
export type DeleteOptions = DeleteFields & CallOptions;
export type UpdateOptions = UpdateFields & CallOptions;
export type ExplainOptions = ExplainFields & CallOptions;
export type PeekOptions = PeekFields & CallOptions;
export type FindOptions = FindFields & CallOptions;
export type SearchOptions = Pick<FindFields, 'state'> & CallOptions;
export type OperationOptions = OperationFields & CallOptions;
export type TopicsOptions = TopicsFields & CallOptions;
export type WorkersOptions = WorkersFields & CallOptions;
export type StatsOptions = StatsFields & CallOptions;
export type ForecastOptions = ForecastFields & CallOptions;
export type FiguresOptions = FiguresFields & CallOptions;
export type ActionsOptions = ActionsFields & CallOptions;
export type TokenOptions = TokenFields & CallOptions;
export type PauseOptions = PauseFields & CallOptions;
export type PurgeOptions = PurgeFields & CallOptions;

/** A member of a batch, in the protocol's form. */
export type Command =
  | ({ command: 'add'; topic: string; body: Body } & AddFields)
  | ({ command: 'add'; topic: string; body?: Body } & AddFields & KeepsBody)
  | ({ command: 'schedule'; name: string; topic: string; body: Body } & ScheduleFields)
  | { command: 'unschedule'; name: string }
  | ({ command: 'schedules' } & SchedulesFields)
  | ({ command: 'pop'; topic?: string; topics?: readonly string[]; count?: number } & PopFields)
  | ({ command: 'finish'; id: string } & FinishFields)
  | ({ command: 'touch'; id: string } & TouchFields)
  | ({ command: 'release'; id: string } & ReleaseFields)
  | ({ command: 'bury'; id: string } & BuryFields)
  | ({ command: 'delete'; id: string } & DeleteFields)
  | ({ command: 'update'; id: string } & UpdateFields)
  | { command: 'get' | 'run'; id: string }
  | ({ command: 'explain'; id: string } & ExplainFields)
  | { command: 'kick'; id?: string; topic?: string; count?: number }
  | ({ command: 'peek'; topic: string } & PeekFields)
  | ({ command: 'find'; prefix: string; topic?: string } & FindFields)
  | ({ command: 'operation'; do: 'plan' | 'start' | 'pause' | 'resume' | 'cancel' | 'get' | 'list' } & OperationFields)
  | ({ command: 'topics' } & TopicsFields)
  | ({ command: 'workers' } & WorkersFields)
  | ({ command: 'stats' } & StatsFields)
  | ({ command: 'forecast' } & ForecastFields)
  | ({ command: 'figures' } & FiguresFields)
  | ({ command: 'pause'; topic: string } & PauseFields)
  | { command: 'resume'; topic: string }
  | ({ command: 'purge'; topic: string } & PurgeFields)
  | { command: 'leave'; worker: string }
  | ({ command: 'token'; action: 'create' | 'list' | 'show' | 'revoke' | 'rotate' | 'test' } & TokenFields)
  | ({ command: 'actions' } & ActionsFields)
  | { command: 'instances' | 'health' | 'settings' | 'whoami' };
