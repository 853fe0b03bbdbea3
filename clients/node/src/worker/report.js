/** The report of a worker: events and hooks, log lines, and the counts of its heartbeat. */
import { Log } from './log.js';
import { asReason } from './outcome.js';

/** The counter of each event that is counted. */
const COUNTERS = {
  finished: 'finished', failed: 'failed', retried: 'retried', buried: 'buried', died: 'died', lost: 'lost', expired: 'lost',
};

export class Report {
  #worker;
  #hooks;
  #log;
  #counts = Object.fromEntries(Object.values(COUNTERS).map((counter) => [counter, 0]));
  #lost_since = null;

  /** @param {object} hooks `on_event`, `on_error` and `on_death`; their errors are logged and otherwise ignored */
  constructor(worker, hooks = {}, logger = undefined) {
    this.#worker = worker;
    this.#hooks = hooks;
    this.#log = new Log(logger);
  }

  started() {
    this.#worker_event('started', {});
  }

  /** @param {string} reason signal, stop, max_jobs, max_time or memory */
  stopping(reason) {
    this.#worker_event('stopping', { reason });
  }

  stopped() {
    this.#worker_event('stopped', this.#counts);
  }

  heartbeat(running) {
    this.#worker_event('heartbeat', { running, ...this.#counts });
  }

  /** @param {string} event started, finished, failed, retried, lost, expired or returned */
  job(event, job, fields) {
    if (event in COUNTERS) this.#counts[COUNTERS[event]] += 1;
    if (event === 'lost' || event === 'expired') this.#log.error(`job.${event}`, named(job, fields));
    this.#event(`job.${event}`, named(job, fields));
  }

  /** A handler threw an error: logged and passed to the hook now; the event follows once the service has the end. */
  raised(job, { error, ...fields }) {
    this.#log.error('job.failed', named(job, fields), error);
    this.onError(error, job);
  }

  /** @param {string} event died or buried: the job is a dead letter now */
  death(event, job, { error, ...fields }) {
    this.#log.error(`job.${event}`, named(job, fields));
    this.job(event, job, { ...fields, error });
    this.onDeath(job, fields.reason, error);
  }

  /** Calls the hook. */
  onError(error, job) {
    this.#call('on_error', error, job);
  }

  /** Calls the hook. */
  onDeath(job, reason, error) {
    this.#call('on_death', job, reason ?? null, error);
  }

  /** A request failed; reported once, until a request is answered again. */
  serviceFailed(error) {
    if (this.#lost_since !== null) return;
    this.#lost_since = performance.now();
    const fields = { reason: error.message };
    this.#log.error('service.lost', fields);
    this.#event('service.lost', fields);
  }

  /** A request was answered. */
  serviceAnswered() {
    if (this.#lost_since === null) return;
    const fields = { seconds: secondsSince(this.#lost_since) };
    this.#lost_since = null;
    this.#log.info('service.back', fields);
    this.#event('service.back', fields);
  }

  #worker_event(event, fields) {
    const all = { worker: this.#worker, ...fields };
    this.#log.info(`worker.${event}`, all);
    this.#event(`worker.${event}`, all);
  }

  #event(name, fields) {
    this.#call('on_event', name, fields);
  }

  #call(hook, ...about) {
    const failed = (error) => this.#log.error('hook.failed', { hook, reason: asReason(error) }, error);
    try {
      this.#hooks[hook]?.(...about)?.catch?.(failed);
    } catch (error) {
      failed(error);
    }
  }
}

function named({ topic, id, attempt, trace_id }, fields) {
  return { topic, id, attempt, ...(trace_id && { trace_id }), ...fields };
}

/** Seconds since a time of performance.now(), to the millisecond. */
export function secondsSince(then) {
  return Math.round(performance.now() - then) / 1000;
}
