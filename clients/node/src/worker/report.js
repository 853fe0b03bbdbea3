/** The report of a worker: events for its hook, log lines on standard error, and the counts of its heartbeat. */
import { asReason } from './outcome.js';

const COUNTED = ['finished', 'failed', 'retried', 'buried', 'lost'];

export class Report {
  #worker;
  #on_event;
  #counts = Object.fromEntries(COUNTED.map((event) => [event, 0]));
  #lost_since = null;

  /** @param {(name: string, fields: object) => void} [on_event] its errors are logged and otherwise ignored */
  constructor(worker, on_event) {
    this.#worker = worker;
    this.#on_event = on_event;
  }

  /** @param {string} event started, stopping or stopped */
  worker(event) {
    this.#event(`worker.${event}`, { worker: this.#worker });
  }

  heartbeat(running) {
    const fields = { worker: this.#worker, running, ...this.#counts };
    log('worker.heartbeat', fields);
    this.#event('worker.heartbeat', fields);
  }

  /** @param {string} event started, finished, failed, retried, buried, lost or returned */
  job(event, { topic, id }, fields) {
    if (event in this.#counts) this.#counts[event] += 1;
    if (event === 'lost') log('job.lost', { topic, id, ...fields });
    this.#event(`job.${event}`, { topic, id, ...fields });
  }

  /** A handler failed: logs its error with the stack. */
  failure({ topic, id }, error) {
    log('job.failed', { topic, id }, error);
  }

  /** A request failed; reported once, until a request is answered again. */
  serviceFailed(error) {
    if (this.#lost_since !== null) return;
    this.#lost_since = performance.now();
    const fields = { reason: asReason(error) };
    log('service.lost', fields);
    this.#event('service.lost', fields);
  }

  /** A request was answered. */
  serviceAnswered() {
    if (this.#lost_since === null) return;
    const fields = { seconds: secondsSince(this.#lost_since) };
    this.#lost_since = null;
    log('service.back', fields);
    this.#event('service.back', fields);
  }

  #event(name, fields) {
    const failed = (error) => log('hook.failed', { event: name }, error);
    try {
      this.#on_event?.(name, fields)?.catch?.(failed);
    } catch (error) {
      failed(error);
    }
  }
}

/** Seconds since a performance.now(), to the millisecond. */
export function secondsSince(then) {
  return Math.round(performance.now() - then) / 1000;
}

function log(event, fields, ...more) {
  const words = Object.entries(fields).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  const line = `jobqueue: ${event} ${words.join(' ')}`;
  try {
    console.error(line, ...more);
  } catch {
    console.error(line, ...more.map(asReason)); // an error that cannot be printed
  }
}
