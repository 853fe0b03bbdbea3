/**
 * The answers to the commands. Times are unix seconds.
 *
 * Made by `make docs` from the structs of the service; its names are chosen in jobqueue/reference/client_types.py.
 */

export type JobState = 'delayed' | 'ready' | 'reserved' | 'dead' | 'finished' | 'deleted';

export type LiveState = Exclude<JobState, 'finished' | 'deleted'>;

export type Counts = Record<LiveState, number>;

/** One of the jobs made by an add to a virtual topic. */
export interface AddedJob {
  /** the topic */
  topic: string;
  /** the job's id */
  id: string;
  /** its state now */
  state: JobState;
  /** when it is due, in unix seconds */
  due: number;
  /** as for one job; dead: this one is dead, cancelled: it was deleted, and it stays so */
  result: 'dead' | 'cancelled' | 'created' | 'existing' | 'moved' | 'replaced';
}

/** The answer to add. */
export interface AddAnswer {
  success: true;
  /** the job's id, given or generated */
  id: string;
  /** its state now */
  state: JobState;
  /** when it is due, in unix seconds */
  due: number;
  /** whether the job was created, existed already, replaced one, or was moved to another time */
  result: 'created' | 'existing' | 'moved' | 'replaced';
  /** if the command asked for one, or the setting is not local: the level that was reached */
  durability?: 'fsynced' | 'local' | 'replicated';
  /** for a virtual topic: its name */
  topic?: string;
  /** for a virtual topic: `topic`, `id`, `state`, `due` and `result` of each job */
  jobs?: AddedJob[];
}

/** The answer to schedule. */
export interface ScheduleAnswer {
  success: true;
  /** the name of the schedule */
  name: string;
  /** whether the schedule is new, existed already with the same definition, or had another one until now */
  result: 'created' | 'existing' | 'replaced';
  /** when its next occurrence is, in unix seconds; null: it is paused, or has no more of them */
  next: number | null;
  /** if the command asked for one, or the setting is not local: the level that was reached */
  durability?: 'fsynced' | 'local' | 'replicated';
}

/** The answer to unschedule. */
export interface UnscheduleAnswer {
  success: true;
  /** the name of the schedule */
  name: string;
  /** how many of its occurrences are still delayed, ready, reserved or dead */
  live: number;
}

/** A schedule in a listing. Options of its occurrences that it does not give are left out. */
export interface ScheduleRow<T = unknown> {
  /** the name of the schedule */
  name: string;
  /** the topic */
  topic: string;
  /** its next five times, in unix seconds; none where it is paused or has ended */
  next: number[];
  /** when the last occurrence that was made is, in unix seconds; null: none was */
  last: number | null;
  /** as it was given, or its default */
  catch_up: 'all' | 'last' | 'none';
  /** as it was given, or its default */
  overlap: 'allow' | 'skip';
  /** whether it has no occurrences */
  paused: boolean;
  /** the body of its occurrences */
  value?: T;
  /** its interval in seconds */
  every?: number;
  /** where its interval counts from, in unix seconds */
  start?: number;
  /** its calendar */
  cron?: string;
  /** the time zone of its calendar */
  zone?: string;
  /** as it was given */
  jitter?: number;
  /** as it was given */
  ttr?: number;
  /** as it was given */
  priority?: number;
  /** as it was given */
  tries?: number;
  /** as it was given */
  backoff?: number[];
  /** as it was given */
  ttl?: number;
  /** as it was given */
  retention?: number;
  /** as they were given */
  headers?: Record<string, string>;
  /** as they were given */
  tags?: string[];
}

/** The answer to schedules. */
export interface SchedulesAnswer<T = unknown> {
  success: true;
  /**
   * each with `name`, `topic`, `every` or `cron` and `zone`, its `next` five times, the `last` one, its options, and
   * its body as `value`
   */
  schedules: ScheduleRow<T>[];
  /** pass it to the next call; null: there is no more */
  cursor: string | null;
}

/** A job as a worker receives it. */
export interface PoppedJob<T = unknown> {
  /** the job's id; null if there is none */
  id: string;
  /** the body, byte for byte as it was sent */
  value: T;
  /** reserved, or finished if its ttr is 0 */
  state: 'reserved' | 'finished';
  /** the topic */
  topic: string;
  /** the number of this delivery, for finish, touch, release and bury */
  lease: number;
  /** the deliveries that count, including this one */
  attempt: number;
  /** the maximum number of deliveries that count; 0: no limit */
  tries: number;
  /** when it was due, in unix seconds */
  due: number;
  /** seconds until it is delivered again */
  ttr: number;
  /** as in add */
  headers: Record<string, string> | null;
  /** when it was added, in unix seconds; with its id, this names its life */
  created: number;
  /** if it was delivered before: when it became ready again, in unix seconds */
  ready?: number;
}

/** The answer to a pop that got a job, a pop that found no job or a pop with `count`. */
export interface PopAnswer<T = unknown> {
  /** the job's id; null if there is none */
  id?: string | null;
  /** the body, byte for byte as it was sent */
  value?: T | null;
  /** reserved, or finished if its ttr is 0 */
  state?: 'reserved' | 'finished';
  /** the topic */
  topic?: string;
  /** the number of this delivery, for finish, touch, release and bury */
  lease?: number;
  /** the deliveries that count, including this one */
  attempt?: number;
  /** the maximum number of deliveries that count; 0: no limit */
  tries?: number;
  /** when it was due, in unix seconds */
  due?: number;
  /** seconds until it is delivered again */
  ttr?: number;
  /** as in add */
  headers?: Record<string, string> | null;
  /** when it was added, in unix seconds; with its id, this names its life */
  created?: number;
  /** if it was delivered before: when it became ready again, in unix seconds */
  ready?: number;
  success: true;
  /** false if no such topic exists, else left out */
  known?: false;
  /** without a job: the topics that are paused, and until when; null: until it is resumed */
  paused?: Record<string, number | null>;
  /**
   * without a job: the limit of a topic that keeps its ready jobs back; `per_key`: that of the key of the job that the
   * pop names
   */
  limited?: 'concurrency' | 'per_key' | 'rate';
  /**
   * and in how many seconds it may be worth asking again; of `concurrency` and `per_key` nobody knows, and it is 1. A
   * pop that waits gets its job when the limit opens
   */
  retry_after?: number;
  /** with `count`: the jobs, each with the fields above; may be empty */
  jobs?: PoppedJob<T>[];
}

/** The answer to finish. */
export interface FinishAnswer {
  success: true;
  /** the job's id */
  id: string;
  /** finished */
  state: 'finished';
  /** if the command asked for one, or the setting is not local: the level that was reached */
  durability?: 'fsynced' | 'local' | 'replicated';
}

/** The answer to delete. */
export interface DeleteAnswer {
  success: true;
  /** the job's id */
  id: string;
  /** deleted */
  state: 'deleted';
  /** its state before the delete */
  was: 'delayed' | 'ready' | 'reserved' | 'dead' | 'deleted';
  /** if the command asked for one, or the setting is not local: the level that was reached */
  durability?: 'fsynced' | 'local' | 'replicated';
}

/** The answer to touch. */
export interface TouchAnswer {
  success: true;
  /** the job's id */
  id: string;
  /** reserved */
  state: 'reserved';
  /** the end of the lease, in unix seconds */
  until: number;
}

/** The answer to release and run. */
export interface MoveAnswer {
  success: true;
  /** the job's id */
  id: string;
  /** its state now */
  state: JobState;
  /** when it is due, in unix seconds */
  due: number;
}

/** The answer to update. */
export interface UpdateAnswer {
  success: true;
  /** the job's id */
  id: string;
  /** its state now */
  state: JobState;
  /** when it is due, in unix seconds */
  due: number;
  /** if the command asked for one, or the setting is not local: the level that was reached */
  durability?: 'fsynced' | 'local' | 'replicated';
}

/** The answer to bury. */
export interface BuryAnswer {
  success: true;
  /** the job's id */
  id: string;
  /** dead */
  state: 'dead';
}

/** The answer to kick of a job. */
export interface KickAnswer {
  success: true;
  /** the job's id */
  id: string;
  /** ready */
  state: 'ready';
  /** how many jobs were made ready */
  count: number;
}

/** The answer to kick of a topic. */
export interface KickTopicAnswer {
  success: true;
  /** the topic */
  topic: string;
  /** how many jobs were made ready */
  count: number;
}

/** All of a job, in the fields of add; points in time are in unix seconds. */
export interface JobDescription<T = unknown> {
  /** the job's id */
  id: string;
  /** its state */
  state: JobState;
  /** the topic */
  topic: string;
  /** the bytes of the body, with `body` false too; not in explain */
  size?: number;
  /** the body, byte for byte as it was sent; null once the job has ended; not with `body` false */
  value?: T;
  /** when it was added, in unix seconds */
  created: number;
  /** when it is due, in unix seconds */
  due: number;
  /** as in add */
  priority: number;
  /** as in add */
  ttr: number;
  /** as in add */
  ttl: number | null;
  /** as in add */
  retention: number;
  /** as in add */
  tries: number;
  /** the deliveries so far that count */
  attempt: number;
  /** all deliveries so far */
  deliveries: number;
  /** as in add */
  backoff: number[];
  /** as in add */
  key?: string;
  /** as in add */
  headers: Record<string, string> | null;
  /** as in add */
  tags: string[] | null;
  /** the lease of its newest delivery */
  lease?: number;
  /** the worker that had it last */
  worker?: string | null;
  /** the reason given by the last release or bury; `lease ended` if its last lease did, which may be what it died of */
  reason?: string | null;
  /** if its last lease ended: when */
  ended?: number;
  /** why it died */
  cause?: 'buried' | 'tries' | 'ttl';
  /** delayed: when it is due next; ended: until when it is remembered */
  until?: number;
  /** since when it has been ready */
  ready_since?: number;
  /** when its lease ends */
  reserved_until?: number;
  /** since when it has been dead */
  dead_since?: number;
}

/** The answer to get. */
export interface GetAnswer<T = unknown> {
  /** the job's id */
  id: string;
  /** its state */
  state: JobState;
  /** the topic */
  topic: string;
  /** the bytes of the body, with `body` false too; not in explain */
  size?: number;
  /** the body, byte for byte as it was sent; null once the job has ended; not with `body` false */
  value?: T;
  /** when it was added, in unix seconds */
  created: number;
  /** when it is due, in unix seconds */
  due: number;
  /** as in add */
  priority: number;
  /** as in add */
  ttr: number;
  /** as in add */
  ttl: number | null;
  /** as in add */
  retention: number;
  /** as in add */
  tries: number;
  /** the deliveries so far that count */
  attempt: number;
  /** all deliveries so far */
  deliveries: number;
  /** as in add */
  backoff: number[];
  /** as in add */
  key?: string;
  /** as in add */
  headers: Record<string, string> | null;
  /** as in add */
  tags: string[] | null;
  /** the lease of its newest delivery */
  lease?: number;
  /** the worker that had it last */
  worker?: string | null;
  /** the reason given by the last release or bury; `lease ended` if its last lease did, which may be what it died of */
  reason?: string | null;
  /** if its last lease ended: when */
  ended?: number;
  /** why it died */
  cause?: 'buried' | 'tries' | 'ttl';
  /** delayed: when it is due next; ended: until when it is remembered */
  until?: number;
  /** since when it has been ready */
  ready_since?: number;
  /** when its lease ends */
  reserved_until?: number;
  /** since when it has been dead */
  dead_since?: number;
  success: true;
  /** true if the topic is paused, else left out */
  paused?: boolean;
  /** if it is paused: until when; null: until it is resumed */
  paused_until?: number | null;
}

/** Where a job stands; points in time are in unix seconds. */
export interface Standing<T = unknown> {
  /**
   * its state; aside: its record could not be read and was set aside; unreadable: it cannot be read; gone: only the
   * journal knows it, and not how it ended
   */
  state: 'delayed' | 'ready' | 'reserved' | 'dead' | 'finished' | 'deleted' | 'aside' | 'gone' | 'unreadable';
  /** its topic; null: not known */
  topic: string | null;
  /** when the life that is explained was created; of all, the last */
  life: number | null;
  /** when the known lives of the job were created */
  lives: number[];
  /** Redis's time; null: it was not asked */
  now: number | null;
  /** until when the journal knows; null: none was read */
  until: number | null;
  /** as `get` shows it, without its body; null: Redis has no record */
  job: JobDescription<T> | null;
  /** the trace in which it was added: see docs/tracing.md */
  trace_id?: string;
  /** the shard that holds it */
  shard?: number;
  /** delayed or reserved: the bucket that has its time */
  bucket?: number;
  /** and the instance that runs the timer of that bucket; null: none does */
  timer?: string | null;
  /** and whether that bucket lists it */
  listed?: boolean | null;
  /** if its time has come and it was not moved: for how many seconds */
  late?: number;
  /** and how many jobs of the bucket are due with it or before, itself too */
  behind?: number | null;
  /** delayed or ready: whether its topic is paused */
  paused?: boolean;
  /** and until when; left out: until it is resumed */
  paused_until?: number;
  /** ready: how many jobs of its priority are before it, counted up to 10,000 */
  before?: number;
  /** and how many of higher priorities */
  above?: number | null;
  /** ready, but its key is busy: how many jobs of the key are before it */
  ahead?: number;
  /** and the job that has the key, or one of them */
  holder?: string | null;
  /** and when the rate of the key allows its next delivery */
  opens_at?: number;
  /** and how many pops of its topic wait */
  waiting?: number | null;
  /**
   * and when the minute began in which a job of its topic was delivered last; null: in none of a day, or no journal was
   * read
   */
  last_delivery?: number | null;
  /** and the limit of its topic that keeps it back */
  limited?: 'concurrency' | 'rate';
  /** dead: when it will be deleted for its age */
  deleted_at?: number;
  /** and how many dead letters of its topic died later */
  newer?: number | null;
  /** and of how many only the newest are kept; null: no limit */
  max_dead?: number | null;
  /** ready: what is known of why it waits, beside the sentence, for people */
  reasons: string[];
  /** what is missing from this answer, as sentences for people */
  notes: string[];
}

/** What happened to a job at one time; spans are in seconds. */
export interface TimelineLine {
  /** when, in unix seconds, by Redis's clock */
  at: number;
  /** added, fell due, delivered, lease over, finished, gap, …, as in the view `jq_timeline` */
  what: string;
  /** how and why, in words */
  how: string;
  /** who did it: the worker, the actor or the instance */
  who: string;
  /** the life that it belongs to: when that was created */
  life: number;
  /** how long after its time a timer moved the job */
  late?: number;
  /** for how long it had been ready */
  waited?: number;
  /** for how long a worker had had it */
  worked?: number;
  /** for how long it had been in back-off */
  backed_off?: number;
  /** a delivery: to which worker */
  worker?: string;
  /** and how many deliveries counted, this one included */
  attempt?: number;
  /**
   * true if Redis has forgotten it, else left out; what a failover took back is in no sum, what happened before Redis
   * was emptied is
   */
  forgotten?: true;
}

/** The sums of a timeline, in seconds. */
export interface TimelineSums {
  /** of one life: how long after its due time it was first delivered */
  late: number | null;
  /** how long after their time timers moved it, in all */
  timers_late: number;
  /** how long it was ready before its deliveries */
  waited: number;
  /** how long workers had it */
  worked: number;
  /** how long it was in back-off */
  backed_off: number;
  /** how often it was delivered */
  deliveries: number;
}

/** The answer to explain. */
export interface ExplainAnswer<T = unknown> {
  success: true;
  /** the job's id */
  id: string;
  /** where the job is and why, for people */
  sentence: string;
  /** the same as facts, for programs */
  facts: Standing<T>;
  /** what happened to it, in order; null: no journal was read */
  timeline: TimelineLine[] | null;
  /** the sums of the timeline; null without one, or where the journal does not keep all events */
  sums: TimelineSums | null;
  /** the journal has nothing older; null: no journal was read, or it is empty */
  since: number | null;
}

/** The answer to peek. */
export interface PeekAnswer<T = unknown> {
  success: true;
  /** the topic */
  topic: string;
  /** each as `get` shows it */
  jobs: JobDescription<T>[];
  /** pass it to the next call; null: there is no more */
  cursor: string | null;
  /** false if the topic does not exist, else left out */
  known?: false;
}

/** The answer to find. */
export interface FindAnswer<T = unknown> {
  success: true;
  /** the topic */
  topic: string;
  /** each as `get` shows it, without its body */
  jobs: JobDescription<T>[];
  /** how many entries the search has looked at, of jobs of all topics, since its first page */
  looked: number;
  /** pass it to the next call; null: there is no more */
  cursor: string | null;
  /** false if the topic does not exist, else left out */
  known?: false;
}

/** The answer to find without a topic. */
export interface SearchBegunAnswer {
  success: true;
  /** the find that goes on in the background; operation with get lists it */
  operation: string;
}

/** A topic in a listing. */
export interface TopicRow {
  /** the topic */
  topic: string;
  /** how many jobs are delayed, ready, reserved and dead */
  counts: Counts;
  /** as `oldest_ready` of stats; null: none is known */
  oldest_ready_s: number | null;
  /** how many workers poll it, of those that `workers` lists */
  workers: number;
  /** whether its pops find nothing */
  paused: boolean;
  /** if it is paused: until when; null: until it is resumed */
  paused_until?: number | null;
  /** how many of the ready jobs wait for others of their key; left out for none */
  blocked?: number;
  /** if it has a limit of delayed and ready jobs: the limit */
  max_pending?: number;
  /** if it has a limit of dead letters: the limit */
  max_dead?: number;
  /** if it has a limit of deliveries a second: the limit */
  rate?: number;
  /** if it has a limit of reserved jobs: the limit */
  concurrency?: number;
}

/** The answer to topics. */
export interface TopicsAnswer {
  success: true;
  /**
   * each with `topic`, its `counts` by state, `oldest_ready_s`, `workers` that poll it, `paused`, `paused_until` if it
   * is, and `max_pending`, `max_dead`, `rate` and `concurrency` if it has such limits
   */
  topics: TopicRow[];
  /** pass it to the next call; null: there is no more */
  cursor: string | null;
}

/** A worker and the topics that it polls through an instance. */
export interface WorkerRow {
  /** its name; of a worker whose pops give none, its client's address */
  worker: string;
  /** the topics that its pops ask for */
  topics: string[];
  /** the instance: host, port and, where several processes share it, number */
  instance: string;
  /** the network address that its newest pop came from, perhaps a proxy's */
  client: string;
  /** since when it has polled here, in unix seconds */
  since: number;
  /**
   * parked: a pop of it is waiting; busy: none is, and it has jobs in hand; blocked: it takes no job now, as its last
   * pop said; idle: none of these
   */
  state: 'blocked' | 'busy' | 'idle' | 'parked';
  /** jobs in hand: delivered through this instance, their leases still hold */
  jobs: number;
  /** when its newest pop began, in unix seconds */
  last_pop: number;
  /** why it is `blocked` */
  blocked?: string;
}

/** The answer to workers. */
export interface WorkersAnswer {
  success: true;
  /**
   * each with `worker`, `topics`, `instance`, `client`, `since`, `state`, `jobs` in hand, `last_pop`, and why it is
   * `blocked` if it is
   */
  workers: WorkerRow[];
  /** of the workers beyond those: how many of their pops are `parked`, and their `jobs` in hand */
  others: { parked: number; jobs: number };
}

/** A process of the service. What it has not told is null. */
export interface InstanceRow {
  /** its name, as `workers` gives it */
  instance: string | null;
  /** the host that it runs on */
  host: string | null;
  /** its process id there */
  pid: number | null;
  /** its number, if its service has several processes; else null */
  worker: number | null;
  /** its version */
  version: string | null;
  /** when it started, in unix seconds */
  started: number | null;
  /** when it last signed the list of instances, in unix seconds */
  signed: number;
  /** the timers that it holds: by shard the numbers of their buckets */
  timers: Record<string, number[]> | null;
  /** how many pops wait at it */
  parked: number;
}

/** The answer to instances. */
export interface InstancesAnswer {
  success: true;
  /** each with `instance`, `host`, `pid`, `worker`, `version`, `started`, `signed`, `timers` and `parked` */
  instances: InstanceRow[];
  /** the number of shards */
  shards: number;
  /** how many buckets a shard has, and so timers */
  buckets: number;
}

/** A finding about the service. */
export interface Finding {
  /** bad: it does not work, or will lose jobs */
  level: 'bad' | 'ok' | 'warn';
  /** what it is about, such as `redis` or `topic example-close-order` */
  subject: string;
  /** what was found, as a sentence for people */
  words: string;
}

/** The answer to health. */
export interface HealthAnswer {
  success: true;
  /** when it was looked, in unix seconds */
  at: number;
  /** each with its `level` (ok, warn or bad), its `subject` and the `words` for it */
  findings: Finding[];
}

/** The answer to stats. */
export interface StatsAnswer {
  success: true;
  /** the topic; null for all topics together */
  topic: string | null;
  /** how many jobs are delayed, ready, reserved and dead */
  counts: Counts;
  /** how many there have ever been: created, delivered, finished, … */
  totals: Record<string, number>;
  /** for how many seconds the oldest ready job has been ready; `blocked` ones do not count */
  oldest_ready: number | null;
  /**
   * pending jobs by how soon they are due: when their minute begins (their hour, if added over a day ahead), so the
   * bins of `forecast` add up to the same
   */
  due: Record<string, number>;
  /** the number of shards that hold the jobs */
  shards: number;
  /** how many of the ready jobs wait for others of their key; left out for none */
  blocked?: number;
  /** of a topic with dead letters, the one that died last: its `id`, `cause`, `reason` and `dead_since` */
  newest_dead?: { id: string; cause: string; reason: string | null; dead_since: number };
  /** false if the topic does not exist, else left out */
  known?: false;
  /** true if the topic is paused, else left out */
  paused?: boolean;
  /** if it is paused: until when; null: until it is resumed */
  paused_until?: number | null;
}

/** A span of time in a forecast. */
export interface ForecastBin {
  /** when it begins, in unix seconds */
  begin: number;
  /** its length in seconds: 60, or 3600 for jobs that are known to the hour */
  width: number;
  /** how many delayed jobs fall due in it, exactly; those in back-off too */
  jobs: number;
  /** how many jobs schedules are going to add in it */
  scheduled: number;
}

/** A topic in a forecast. */
export interface LargestTopic {
  /** its name */
  topic: string;
  /** how many of the jobs in all bins are its own, without scheduled ones */
  jobs: number;
}

/** The answer to forecast. */
export interface ForecastAnswer {
  success: true;
  /** the topic; null: all topics */
  topic: string | null;
  /** each with `begin`, `width` in seconds, `jobs`, and, not yet among those, `scheduled`; empty ones are left out */
  bins: ForecastBin[];
  /** the jobs in all bins */
  total: number;
  /** the delayed jobs that are due later */
  later: number;
  /**
   * until when what schedules add is counted, in unix seconds, as that ends after 20,000 occurrences; null: to the end
   */
  scheduled_until: number | null;
  /** how many topics were added up */
  topics: number;
  /** how many were not, as no more than the 2,000 that were used last are added up */
  left_out: number;
  /** the topics with most of these jobs, up to five, each with `topic` and `jobs` */
  largest: LargestTopic[];
}

/** How late some jobs were. */
export interface Lateness {
  /** how many jobs, by bucket: see `bounds` of the answer */
  counts: number[];
  /** the median in seconds, as good as the buckets allow; at most the last bound */
  p50: number;
  /** likewise, what 99 of 100 jobs did not exceed */
  p99: number;
}

/** A span of time in figures. */
export interface FiguresBin {
  /** when it begins, in unix seconds: a multiple of `step`; of `total`, `since` */
  begin: number;
  /** jobs added, those that replaced others too */
  adds: number;
  /** jobs handed out, again too */
  deliveries: number;
  /** jobs finished */
  finishes: number;
  /** jobs that became dead letters, by cause: tries, ttl, buried */
  deaths: Record<string, number>;
  /** from a job's due time, or the end of its lease, until a timer made it ready; null: no job was */
  due_to_ready: Lateness | null;
  /** from a job's due time until its first delivery; null: there was none */
  due_to_delivered: Lateness | null;
  /**
   * commands refused, by what kind of code: request (it is malformed), access, state (of the job), limit, unavailable,
   * internal; left out for a topic
   */
  refusals?: Record<string, number>;
}

/** The answer to figures. */
export interface FiguresAnswer {
  success: true;
  /** the topic; null: all topics */
  topic: string | null;
  /** where the figures begin, in unix seconds: a whole minute */
  since: number;
  /** where they end, in unix seconds: a whole minute, which may not be over */
  until: number;
  /** the width of a bin in seconds */
  step: number;
  /** the upper ends of the buckets of lateness in seconds; one more bucket has what was later than the last of them */
  bounds: number[];
  /**
   * each with `begin`, `adds`, `deliveries`, `finishes`, `deaths`, `due_to_ready`, `due_to_delivered` and, without a
   * topic, `refusals`; those in which nothing happened are left out
   */
  bins: FiguresBin[];
  /** all bins together, from `since` to `until` */
  total: FiguresBin;
  /** pops that wait now; of a topic, those of the workers that `workers` lists */
  parked: number;
}

/** The answer to pause. */
export interface PauseAnswer {
  success: true;
  /** the topic */
  topic: string;
  /** until when, in unix seconds; null: until it is resumed */
  until: number | null;
  /** false if the topic does not exist, else left out */
  known?: false;
}

/** The answer to resume. */
export interface ResumeAnswer {
  success: true;
  /** the topic */
  topic: string;
  /** whether it was paused */
  was_paused: boolean;
  /** false if the topic does not exist, else left out */
  known?: false;
}

/** The answer to purge. */
export interface PurgeAnswer {
  success: true;
  /** the topic */
  topic: string;
  /** how many jobs were deleted */
  count: number;
  /** pass it to the next call; null: there is no more */
  cursor: string | null;
  /** false if the topic does not exist, else left out */
  known?: false;
}

/** The answer to leave. */
export interface LeaveAnswer {
  success: true;
  /** the worker whose pops end */
  worker: string;
}

/** An action in the log of actions. */
export interface LoggedAction {
  /** when it began, in unix seconds */
  at: number;
  /**
   * the name of the token; after a slash, the person that `X-Jobqueue-Actor` named; for `jobqueue token` over Redis and
   * `jobqueue restore`, the user and the machine; `-`: not known
   */
  actor: string;
  /**
   * the command, of `token` with its `action`, of `operation` with `do`; `reload` for settings that were read again;
   * `restore`, with what it restores, for `jobqueue restore`
   */
  action: string;
  /** OK, the code of its error, or `not known`: it was cut off */
  outcome: string;
  /** how many jobs, topics, tokens or settings it changed; of a purge, those of this request */
  done: number;
  /** the id of the request, if there was one */
  request?: string;
  /** the id of the token, if there was one */
  token?: string;
  /** the topic, if the command named one */
  topic?: string;
  /** the job or token, if the command named one */
  id?: string | number;
  /** as in the command; of `jobqueue restore`, its run */
  name?: string;
  /** as in the command */
  state?: string;
  /** as in the command */
  count?: number;
  /** as in the command */
  seconds?: number;
  /** the operation, if the command steered one */
  operation?: string;
  /** what that operation does */
  kind?: string;
  /** how many jobs its plan has */
  jobs?: number;
  /** which jobs it takes */
  filter?: Record<string, string | number>;
  /** how topics begin, for a dialect's command */
  within?: string;
  /** the settings that changed */
  changed?: string[];
  /** the client's address and port */
  address?: string;
}

/** The answer to actions. */
export interface ActionsAnswer {
  success: true;
  /** the newest first; about the last 5,000 are kept */
  actions: LoggedAction[];
  /** pass it to the next call; null: there is no more */
  cursor: string | null;
}

/** An operation in a listing. */
export interface OperationRow {
  /** its id, which is that of its plan */
  operation: string;
  /** as in the plan */
  kind: 'delete' | 'find' | 'kick' | 'reschedule' | 'run';
  /**
   * planning: the jobs are being counted; planned: it can be started for 15 minutes; waiting: another one of this kind
   * is running
   */
  state: 'cancelled' | 'done' | 'failed' | 'paused' | 'planned' | 'planning' | 'running' | 'waiting';
  /** as in the plan, times in unix seconds */
  filter: Record<string, string | number>;
  /** how many jobs matched when it was planned; of a find, found; until then, so far */
  count: number;
  /**
   * whether they were counted; if not, `count` is an estimate, as there are over a million entries to look at, or a
   * find ended at 1,000 jobs
   */
  exact: boolean;
  /**
   * entries of indexes that were looked at, or keys, about, of a find by prefix alone; null for a token that does not
   * reach all topics
   */
  looked: number | null;
  /** jobs that were changed so far; of a find, found */
  done: number;
  /**
   * jobs that matched when it was planned and were not changed, as they had changed meanwhile; complete when it is done
   */
  skipped: number;
  /** as in start; null until then */
  rate: number | null;
  /** jobs a second, lately */
  speed: number;
  /** whether it runs at half of `rate`, as over one in a hundred jobs came more than 25 ms late */
  slowed: boolean;
  /** seconds until it is done, at this speed; null: not known */
  left: number | null;
  /** when it was planned: jobs that were added, delivered or died later stay as they are */
  begun: number;
  /** who planned it, as in the log of actions; empty: not known */
  by: string;
  /** when it was started */
  started: number | null;
  /** who started it */
  started_by: string;
  /** when it was done, cancelled or failed */
  ended: number | null;
  /** as in the plan */
  shift?: number;
  /** as in the plan */
  at?: number;
  /** as in the plan */
  spread?: number;
  /** why it failed, as a sentence */
  error?: string;
}

/** The answer to operation with start, pause, resume, cancel or get. */
export interface OperationAnswer {
  /** its id, which is that of its plan */
  operation: string;
  /** as in the plan */
  kind: 'delete' | 'find' | 'kick' | 'reschedule' | 'run';
  /**
   * planning: the jobs are being counted; planned: it can be started for 15 minutes; waiting: another one of this kind
   * is running
   */
  state: 'cancelled' | 'done' | 'failed' | 'paused' | 'planned' | 'planning' | 'running' | 'waiting';
  /** as in the plan, times in unix seconds */
  filter: Record<string, string | number>;
  /** how many jobs matched when it was planned; of a find, found; until then, so far */
  count: number;
  /**
   * whether they were counted; if not, `count` is an estimate, as there are over a million entries to look at, or a
   * find ended at 1,000 jobs
   */
  exact: boolean;
  /**
   * entries of indexes that were looked at, or keys, about, of a find by prefix alone; null for a token that does not
   * reach all topics
   */
  looked: number | null;
  /** jobs that were changed so far; of a find, found */
  done: number;
  /**
   * jobs that matched when it was planned and were not changed, as they had changed meanwhile; complete when it is done
   */
  skipped: number;
  /** as in start; null until then */
  rate: number | null;
  /** jobs a second, lately */
  speed: number;
  /** whether it runs at half of `rate`, as over one in a hundred jobs came more than 25 ms late */
  slowed: boolean;
  /** seconds until it is done, at this speed; null: not known */
  left: number | null;
  /** when it was planned: jobs that were added, delivered or died later stay as they are */
  begun: number;
  /** who planned it, as in the log of actions; empty: not known */
  by: string;
  /** when it was started */
  started: number | null;
  /** who started it */
  started_by: string;
  /** when it was done, cancelled or failed */
  ended: number | null;
  /** as in the plan */
  shift?: number;
  /** as in the plan */
  at?: number;
  /** as in the plan */
  spread?: number;
  /** why it failed, as a sentence */
  error?: string;
  success: true;
  /** ids of up to 20 jobs that matched; of a find, of up to 1,000 */
  samples: string[];
}

/** The answer to operation with plan. */
export interface OperationPlanAnswer {
  /** its id, which is that of its plan */
  operation: string;
  /** as in the plan */
  kind: 'delete' | 'find' | 'kick' | 'reschedule' | 'run';
  /**
   * planning: the jobs are being counted; planned: it can be started for 15 minutes; waiting: another one of this kind
   * is running
   */
  state: 'cancelled' | 'done' | 'failed' | 'paused' | 'planned' | 'planning' | 'running' | 'waiting';
  /** as in the plan, times in unix seconds */
  filter: Record<string, string | number>;
  /** how many jobs matched when it was planned; of a find, found; until then, so far */
  count: number;
  /**
   * whether they were counted; if not, `count` is an estimate, as there are over a million entries to look at, or a
   * find ended at 1,000 jobs
   */
  exact: boolean;
  /**
   * entries of indexes that were looked at, or keys, about, of a find by prefix alone; null for a token that does not
   * reach all topics
   */
  looked: number | null;
  /** jobs that were changed so far; of a find, found */
  done: number;
  /**
   * jobs that matched when it was planned and were not changed, as they had changed meanwhile; complete when it is done
   */
  skipped: number;
  /** as in start; null until then */
  rate: number | null;
  /** jobs a second, lately */
  speed: number;
  /** whether it runs at half of `rate`, as over one in a hundred jobs came more than 25 ms late */
  slowed: boolean;
  /** seconds until it is done, at this speed; null: not known */
  left: number | null;
  /** when it was planned: jobs that were added, delivered or died later stay as they are */
  begun: number;
  /** who planned it, as in the log of actions; empty: not known */
  by: string;
  /** when it was started */
  started: number | null;
  /** who started it */
  started_by: string;
  /** when it was done, cancelled or failed */
  ended: number | null;
  /** as in the plan */
  shift?: number;
  /** as in the plan */
  at?: number;
  /** as in the plan */
  spread?: number;
  /** why it failed, as a sentence */
  error?: string;
  success: true;
  /** the id of the plan, to start it by */
  plan: string;
  /** ids of up to 20 jobs that matched; of a find, of up to 1,000 */
  samples: string[];
}

/** The answer to operation with list. */
export interface OperationListAnswer {
  success: true;
  /** the newest 100, the newest first */
  operations: OperationRow[];
}

/** A token in a listing. */
export interface TokenRecord {
  /** its 8 characters that are no secret */
  id: string;
  /** as in create */
  name: string;
  /** whether it holds */
  state: 'expired' | 'live' | 'revoked';
  /** where its record is kept */
  source: 'file' | 'redis';
  /** as in create */
  rights: string[];
  /** as in create; none: all topics */
  topics: string[];
  /** when it was created; 0: not known */
  created: number;
  /** by whom */
  created_by: string;
  /** when it ends; null: never */
  expires: number | null;
  /** the minute of its last use; null: none is known */
  used: number | null;
  /** as in create */
  rate: number | null;
  /** as in create */
  burst: number | null;
  /** as in create */
  bytes: number | null;
  /** as in create */
  waits: number | null;
  /** as in create */
  own_ids: boolean;
  /** as in create */
  certificate: string | null;
  /** if its secret was exchanged: until when the old one holds, too */
  old_until?: number;
  /** if it was revoked: when */
  revoked?: number;
}

/** The answer to token with show or revoke. */
export interface TokenAnswer {
  /** its 8 characters that are no secret */
  id: string;
  /** as in create */
  name: string;
  /** whether it holds */
  state: 'expired' | 'live' | 'revoked';
  /** where its record is kept */
  source: 'file' | 'redis';
  /** as in create */
  rights: string[];
  /** as in create; none: all topics */
  topics: string[];
  /** when it was created; 0: not known */
  created: number;
  /** by whom */
  created_by: string;
  /** when it ends; null: never */
  expires: number | null;
  /** the minute of its last use; null: none is known */
  used: number | null;
  /** as in create */
  rate: number | null;
  /** as in create */
  burst: number | null;
  /** as in create */
  bytes: number | null;
  /** as in create */
  waits: number | null;
  /** as in create */
  own_ids: boolean;
  /** as in create */
  certificate: string | null;
  /** if its secret was exchanged: until when the old one holds, too */
  old_until?: number;
  /** if it was revoked: when */
  revoked?: number;
  success: true;
}

/** The answer to token with create or rotate. */
export interface TokenIssuedAnswer {
  /** its 8 characters that are no secret */
  id: string;
  /** as in create */
  name: string;
  /** whether it holds */
  state: 'expired' | 'live' | 'revoked';
  /** where its record is kept */
  source: 'file' | 'redis';
  /** as in create */
  rights: string[];
  /** as in create; none: all topics */
  topics: string[];
  /** when it was created; 0: not known */
  created: number;
  /** by whom */
  created_by: string;
  /** when it ends; null: never */
  expires: number | null;
  /** the minute of its last use; null: none is known */
  used: number | null;
  /** as in create */
  rate: number | null;
  /** as in create */
  burst: number | null;
  /** as in create */
  bytes: number | null;
  /** as in create */
  waits: number | null;
  /** as in create */
  own_ids: boolean;
  /** as in create */
  certificate: string | null;
  /** if its secret was exchanged: until when the old one holds, too */
  old_until?: number;
  success: true;
  /** the token, which is shown this once */
  token: string;
}

/** The answer to token with list. */
export interface TokenListAnswer {
  success: true;
  /** each as show has it; ended ones for 7 days */
  tokens: TokenRecord[];
}

/** The answer to token with test. */
export interface TokenTestAnswer {
  success: true;
  /** the token */
  id: string;
  /** whether it may do that */
  allowed: boolean;
  /** if not: why, as a sentence for people */
  why: string | null;
}

/** A setting in force. */
export interface Setting {
  /** its name; of a dialect `protocols.<dialect>.<name>` */
  name: string;
  /** its value; of a secret `set` or `not set` */
  value: unknown;
  /** where the value came from */
  source: 'default' | 'environment' | 'file' | 'flag';
}

/** What holds for the jobs of a topic that has settings of its own. */
export interface Policy {
  /** the topic */
  topic: string;
  /** as in the settings */
  ttr_s: number;
  /** as in the settings */
  tries: number;
  /** as in the settings */
  backoff_s: number[];
  /** as in the settings; null: none */
  ttl_s: number | null;
  /** as in the settings */
  retention_s: number;
  /** as in the settings */
  priority: number;
  /** as in the settings; 0: no limit */
  max_pending: number;
  /** as in the settings; 0: no limit */
  max_dead: number;
  /** as in the settings */
  dead_age_s: number;
  /** as in the settings; null: no limit */
  rate: number | null;
  /** as in the settings; null: no limit */
  concurrency: number | null;
  /** `concurrency` and `rate`, as in the settings */
  per_key: Record<string, number | null>;
  /** which of these the topic sets itself; the others are defaults */
  own: string[];
}

/** The answer to settings. */
export interface SettingsAnswer {
  success: true;
  /** each with its `name`, its `value`, and as `source` default, file, environment or flag */
  settings: Setting[];
  /**
   * of each topic with settings of its own: what holds for it, by the names of the settings, and which of these are its
   * `own`
   */
  policies: Policy[];
  /** the virtual topics, each with those that get its jobs */
  virtual_topics: Record<string, string[]>;
}

/** The answer to whoami. */
export interface WhoamiAnswer {
  success: true;
  /** whether the service asks for no tokens; then the rest is left out */
  open: boolean;
  /** the token, by its 8 characters that are no secret */
  id?: string;
  /** its name */
  name?: string;
  /** what it may do */
  rights?: string[];
  /** the commands that these rights allow */
  commands?: string[];
  /** the topics that it reaches; none: all */
  topics?: string[];
  /** when it ends; null: never */
  expires?: number | null;
  /** as of token */
  rate?: number | null;
  /** as of token */
  burst?: number | null;
  /** as of token */
  bytes?: number | null;
  /** as of token */
  waits?: number | null;
  /** as of token */
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
  delete: DeleteAnswer;
  touch: TouchAnswer;
  release: MoveAnswer;
  bury: BuryAnswer;
  leave: LeaveAnswer;
  kick: KickAnswer | KickTopicAnswer;
  run: MoveAnswer;
  update: UpdateAnswer;
  get: GetAnswer;
  explain: ExplainAnswer;
  stats: StatsAnswer;
  forecast: ForecastAnswer;
  figures: FiguresAnswer;
  peek: PeekAnswer;
  find: FindAnswer | SearchBegunAnswer;
  topics: TopicsAnswer;
  workers: WorkersAnswer;
  instances: InstancesAnswer;
  health: HealthAnswer;
  pause: PauseAnswer;
  resume: ResumeAnswer;
  purge: PurgeAnswer;
  operation: OperationPlanAnswer | OperationAnswer | OperationListAnswer;
  actions: ActionsAnswer;
  settings: SettingsAnswer;
  token: TokenIssuedAnswer | TokenAnswer | TokenListAnswer | TokenTestAnswer;
  whoami: WhoamiAnswer;
}

/** The answer to a command of a batch. */
export type AnswerTo<C> = C extends { command: infer N extends keyof Answers } ? Answers[N] : never;
