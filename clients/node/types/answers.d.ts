/** The answers to the commands. Times are unix seconds. */

export type JobState = 'delayed' | 'ready' | 'reserved' | 'dead' | 'finished' | 'deleted';

export type LiveState = Exclude<JobState, 'finished' | 'deleted'>;

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
  /** In unix seconds. Left out where the client's own retry found the job dead: `existing`. */
  due: number;
  /**
   * `moved`: it has another time. `dead` and `cancelled`: a copy for a topic of a virtual one that is dead or was deleted
   * before, and stays so.
   */
  result: 'created' | 'existing' | 'replaced' | 'moved' | 'dead' | 'cancelled';
}

export interface AddAnswer extends Answer, AddedJob {
  durability?: 'local' | 'replicated' | 'fsynced';
  /** For a virtual topic, its name. `state`, `due` and `result` are then in each member of `jobs`, and not here. */
  topic?: string;
  jobs?: (AddedJob & { topic: string })[];
}

export interface ScheduleAnswer extends Answer {
  name: string;
  /** `existing`: the same definition as before, which keeps its times. */
  result: 'created' | 'existing' | 'replaced';
  /** When its next occurrence is; null: it is paused, or has no more of them. */
  next: number | null;
  durability?: 'local' | 'replicated' | 'fsynced';
}

export interface UnscheduleAnswer extends Answer {
  name: string;
  /** How many of its occurrences are still delayed, ready, reserved or dead. */
  live: number;
}

/** A schedule. Options of its occurrences that it does not give are left out. */
export interface ScheduleRow<T = unknown> {
  name: string;
  topic: string;
  every?: number;
  start?: number;
  cron?: string;
  zone?: string;
  jitter?: number;
  catch_up: 'none' | 'last' | 'all';
  overlap: 'allow' | 'skip';
  paused: boolean;
  /** Its next five times; none: it is paused, or has no more of them. */
  next: number[];
  /** When the last occurrence that was made is. */
  last: number | null;
  /** The body; left out for a token without the right `bodies`. */
  value?: T;
  ttr?: number;
  priority?: number;
  tries?: number;
  backoff?: number[];
  ttl?: number;
  retention?: number;
  headers?: Record<string, string>;
  tags?: string[];
}

export interface SchedulesAnswer<T = unknown> extends Answer {
  schedules: ScheduleRow<T>[];
  /** For the next page; null on the last one. */
  cursor: string | null;
}

/** The answer to a pop in a batch. */
export interface PopAnswer<T = unknown> extends Answer {
  /** False if none of the topics exists. */
  known?: false;
  /** Without a job: until when the paused ones of the topics are paused; null: until they are resumed. */
  paused?: Record<string, number | null>;
  /** Without a job: the limit of a topic that keeps its ready jobs back. */
  limited?: 'rate' | 'concurrency';
  /** And in how many seconds it may be worth asking again. */
  retry_after?: number;
  /** When it became ready again, if it was delivered before. */
  ready?: number;
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
  /** When it became ready again, if it was delivered before. */
  ready?: number;
  /** When it was added, in unix seconds; an older service does not say. */
  created?: number;
  ttr: number;
  headers: Record<string, string> | null;
}

export interface FinishAnswer extends AnswerOfJob {
  durability?: 'local' | 'replicated' | 'fsynced';
}

export interface DeleteAnswer extends AnswerOfJob {
  state: 'deleted';
  /** The state before; `deleted` also if this delete was repeated because its first answer was lost. */
  was: JobState;
  durability?: 'local' | 'replicated' | 'fsynced';
}

export interface TouchAnswer extends AnswerOfJob {
  /** The end of the lease, in unix seconds. */
  until: number;
}

/** The answer to release and run. */
export interface MoveAnswer extends AnswerOfJob {
  due: number;
}

export interface UpdateAnswer extends MoveAnswer {
  durability?: 'local' | 'replicated' | 'fsynced';
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
  /** Null once the job has ended. */
  value: T | null;
  /** Bytes of the body. */
  size: number;
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
  /** When the lease of its last delivery ended, if it did. */
  ended?: number;
  /** If its topic is paused: that, and until when; null: until it is resumed. */
  paused?: true;
  paused_until?: number | null;
  until?: number;
  ready_since?: number;
  reserved_until?: number;
  dead_since?: number;
}

export interface GetAnswer<T = unknown> extends Answer, JobDescription<T> {}

/** Where a job stands. What its state does not ask for is left out. */
export interface Standing {
  state: JobState | 'aside' | 'unreadable' | 'gone';
  topic: string | null;
  life: number | null;
  lives: number[];
  now: number | null;
  until: number | null;
  job: Omit<JobDescription, 'value'> | null;
  shard?: number;
  bucket?: number;
  timer?: string | null;
  listed?: boolean | null;
  late?: number;
  behind?: number | null;
  paused?: boolean;
  paused_until?: number;
  before?: number;
  above?: number | null;
  waiting?: number | null;
  last_delivery?: number | null;
  /** The limit of its topic that keeps it back. */
  limited?: 'rate' | 'concurrency';
  deleted_at?: number;
  newer?: number | null;
  max_dead?: number | null;
  /** Of a ready job: what is known of why it waits, beside the sentence, for people. */
  reasons: string[];
  /** What is missing from the answer, as sentences for people. */
  notes: string[];
}

/** What happened to a job at one time; spans are in seconds. */
export interface TimelineLine {
  at: number;
  what: string;
  how: string;
  who: string;
  life: number;
  late?: number;
  waited?: number;
  worked?: number;
  backed_off?: number;
  worker?: string;
  attempt?: number;
  forgotten?: true;
}

export interface ExplainAnswer extends Answer {
  id: string;
  sentence: string;
  facts: Standing;
  /** Null: the service has no journal, or could not read it. */
  timeline: TimelineLine[] | null;
  sums: {
    late: number | null;
    timers_late: number;
    waited: number;
    worked: number;
    backed_off: number;
    deliveries: number;
  } | null;
  since: number | null;
}

export interface PeekAnswer<T = unknown> extends Answer {
  topic: string;
  /** False if there is no such topic. */
  known?: false;
  jobs: JobDescription<T>[];
  /** For the next page; null on the last one. */
  cursor: string | null;
}

export interface FindAnswer extends PeekAnswer<never> {
  /** How many entries the search has looked at, of jobs of all topics, since its first page. */
  looked: number;
}

export type Counts = Record<LiveState, number>;

export interface TopicsAnswer extends Answer {
  topics: {
    topic: string;
    counts: Counts;
    /** Seconds for which its oldest ready job has been ready. */
    oldest_ready_s: number | null;
    /** The number of workers that poll it. */
    workers: number;
    paused: boolean;
    paused_until?: number | null;
    /** Its limits, if it has them. */
    max_pending?: number;
    max_dead?: number;
    rate?: number;
    concurrency?: number;
  }[];
  cursor: string | null;
}

export interface WorkerRow {
  worker: string;
  topics: string[];
  instance: string;
  client: string;
  since: number;
  state: 'parked' | 'busy' | 'blocked' | 'idle';
  jobs: number;
  last_pop: number;
  blocked?: string;
}

export interface WorkersAnswer extends Answer {
  workers: WorkerRow[];
  others: { parked: number; jobs: number };
}

/** A process of the service; what it has not told is null. */
export interface InstanceRow {
  /** As in `WorkerRow`. */
  instance: string | null;
  host: string | null;
  pid: number | null;
  worker: number | null;
  version: string | null;
  started: number | null;
  signed: number;
  /** By shard, the buckets whose timers it holds. */
  timers: Record<string, number[]> | null;
  parked: number;
}

export interface InstancesAnswer extends Answer {
  instances: InstanceRow[];
  shards: number;
  buckets: number;
}

export interface HealthAnswer extends Answer {
  at: number;
  findings: { level: 'ok' | 'warn' | 'bad'; subject: string; words: string }[];
}

export interface StatsAnswer extends Answer {
  /** Null: all topics together. */
  topic: string | null;
  counts: Counts;
  totals: Record<string, number>;
  /** Seconds for which the oldest ready job has been ready. */
  oldest_ready: number | null;
  due: Record<string, number>;
  shards: number;
  /** Of a topic with dead letters: the last one. */
  newest_dead?: { id: string; cause: string; reason: string | null; dead_since: number };
  paused?: true;
  paused_until?: number | null;
  /** False if there is no such topic. */
  known?: false;
}

export interface ForecastAnswer extends Answer {
  /** Null: all topics together. */
  topic: string | null;
  /** `width` is 60 or 3,600 s; `scheduled` is what schedules are going to add, not among `jobs` yet. */
  bins: { begin: number; width: number; jobs: number; scheduled: number }[];
  total: number;
  later: number;
  /** Until when `scheduled` is counted, in unix seconds; null: to the end. */
  scheduled_until: number | null;
  topics: number;
  left_out: number;
  /** The topics with most of these jobs, up to five. */
  largest: { topic: string; jobs: number }[];
}

/** How late some jobs were, in seconds. */
export interface Lateness {
  /** How many jobs, by bucket: see `bounds` of the answer. */
  counts: number[];
  p50: number;
  p99: number;
}

export interface FiguresBin {
  begin: number;
  adds: number;
  deliveries: number;
  finishes: number;
  /** By cause. */
  deaths: Record<string, number>;
  due_to_ready: Lateness | null;
  due_to_delivered: Lateness | null;
  /** By what kind of code; only without a topic. */
  refusals?: Record<string, number>;
}

export interface FiguresAnswer extends Answer {
  /** Null: all topics together. */
  topic: string | null;
  since: number;
  until: number;
  step: number;
  /** The upper ends of the buckets of lateness in seconds; the last bucket has none. */
  bounds: number[];
  bins: FiguresBin[];
  total: FiguresBin;
  /** Pops that wait now. */
  parked: number;
}

export interface PauseAnswer extends Answer {
  topic: string;
  /** False if there is no such topic. */
  known?: false;
  /** In unix seconds; null: until it is resumed. */
  until: number | null;
}

export interface ResumeAnswer extends Answer {
  topic: string;
  /** False if there is no such topic. */
  known?: false;
  was_paused: boolean;
}

export interface PurgeAnswer extends Answer {
  topic: string;
  /** False if there is no such topic. */
  known?: false;
  count: number;
  cursor: string | null;
}

export interface LeaveAnswer extends Answer {
  worker: string;
}

/** What somebody did. `outcome`: OK, the code of its error, or `not known`. */
export interface LoggedAction {
  at: number;
  actor: string;
  action: string;
  outcome: string;
  done: number;
  /** Of what was asked for in a request: its id. */
  request?: string;
  token?: string;
  topic?: string;
  id?: string | number;
  name?: string;
  state?: string;
  count?: number;
  seconds?: number;
  within?: string;
  /** Of `reload`: the settings that changed. */
  changed?: string[];
  address?: string;
}

export interface ActionsAnswer extends Answer {
  actions: LoggedAction[];
  cursor: string | null;
}

/** What is known of an operation; points in time are unix seconds. */
export interface OperationRow {
  operation: string;
  kind: 'kick' | 'delete' | 'run' | 'reschedule' | 'find';
  state: 'planning' | 'planned' | 'waiting' | 'running' | 'paused' | 'done' | 'cancelled' | 'failed';
  filter: Record<string, string | number>;
  count: number;
  exact: boolean;
  /** Null for a token that does not reach all topics. */
  looked: number | null;
  done: number;
  skipped: number;
  rate: number | null;
  speed: number;
  slowed: boolean;
  /** Seconds until it is done; null: not known. */
  left: number | null;
  begun: number;
  by: string;
  started: number | null;
  started_by: string;
  ended: number | null;
  shift?: number;
  at?: number;
  spread?: number;
  error?: string;
}

export interface OperationAnswer extends Answer, OperationRow {
  /** Ids of up to 20 jobs that matched; of a find, of up to 1,000. */
  samples: string[];
}

export interface OperationPlanAnswer extends OperationAnswer {
  /** By which it is started. */
  plan: string;
}

export interface OperationListAnswer extends Answer {
  operations: OperationRow[];
}

/** Of a find without a topic. */
export interface SearchBegunAnswer extends Answer {
  /** Lists what it has found, with get. */
  operation: string;
}

/** What is kept of a token. */
export interface TokenRecord {
  id: string;
  name: string;
  state: 'live' | 'expired' | 'revoked';
  source: 'redis' | 'file';
  rights: string[];
  topics: string[];
  created: number;
  created_by: string;
  expires: number | null;
  used: number | null;
  rate: number | null;
  burst: number | null;
  bytes: number | null;
  waits: number | null;
  own_ids: boolean;
  certificate: string | null;
  /** Once it was revoked: when. */
  revoked?: number;
  /** Once its secret was exchanged: until when the old one holds, too. */
  old_until?: number;
}

export interface TokenAnswer extends Answer, TokenRecord {}

export interface TokenIssuedAnswer extends TokenAnswer {
  /** The token, which is shown this once. */
  token: string;
}

export interface TokenListAnswer extends Answer {
  tokens: TokenRecord[];
}

export interface TokenTestAnswer extends Answer {
  id: string;
  allowed: boolean;
  why: string | null;
}

/** What holds for the jobs of a topic; `own` names what the topic sets itself. */
export interface Policy {
  topic: string;
  ttr_s: number;
  tries: number;
  backoff_s: number[];
  ttl_s: number | null;
  retention_s: number;
  priority: number;
  max_pending: number;
  max_dead: number;
  dead_age_s: number;
  rate: number | null;
  concurrency: number | null;
  own: string[];
}

export interface SettingsAnswer extends Answer {
  /** The value of a secret is `set` or `not set`. */
  settings: { name: string; value: unknown; source: 'default' | 'file' | 'environment' | 'flag' }[];
  policies: Policy[];
  virtual_topics: Record<string, string[]>;
}

/** With `open`, the service asks for no tokens, and the rest is left out. */
export interface WhoamiAnswer extends Answer {
  open: boolean;
  id?: string;
  name?: string;
  rights?: string[];
  commands?: string[];
  topics?: string[];
  expires?: number | null;
  rate?: number | null;
  burst?: number | null;
  bytes?: number | null;
  waits?: number | null;
  own_ids?: boolean;
}

/** The answer to each command. */
interface Answers {
  add: AddAnswer;
  schedule: ScheduleAnswer;
  unschedule: UnscheduleAnswer;
  schedules: SchedulesAnswer;
  pop: PopAnswer;
  finish: FinishAnswer;
  touch: TouchAnswer;
  release: MoveAnswer;
  bury: BuryAnswer;
  delete: DeleteAnswer;
  update: UpdateAnswer;
  get: GetAnswer;
  explain: ExplainAnswer;
  run: MoveAnswer;
  kick: KickAnswer | KickTopicAnswer;
  peek: PeekAnswer;
  find: FindAnswer | SearchBegunAnswer;
  topics: TopicsAnswer;
  workers: WorkersAnswer;
  instances: InstancesAnswer;
  health: HealthAnswer;
  stats: StatsAnswer;
  forecast: ForecastAnswer;
  figures: FiguresAnswer;
  pause: PauseAnswer;
  resume: ResumeAnswer;
  purge: PurgeAnswer;
  operation: OperationAnswer | OperationPlanAnswer | OperationListAnswer;
  leave: LeaveAnswer;
  token: TokenAnswer | TokenIssuedAnswer | TokenListAnswer | TokenTestAnswer;
  whoami: WhoamiAnswer;
  settings: SettingsAnswer;
  actions: ActionsAnswer;
}

/** The answer to a command of a batch. */
export type AnswerTo<C> = C extends { command: infer N extends keyof Answers } ? Answers[N] : never;
