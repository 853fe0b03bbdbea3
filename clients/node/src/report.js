/** What a worker tells: events to its hook, lines to standard error, and the counts of its heartbeat. */
import { asReason } from './handler.js';

const COUNTED = ['finished', 'failed', 'retried', 'buried', 'lost'];

export class Report {
  #worker;
  #on_event;
  #counts = Object.fromEntries(COUNTED.map((word) => [word, 0]));
  #gone_since = null;

  /** @param {(name: string, fields: object) => void} [on_event] its errors are logged and do no harm */
  constructor(worker, on_event) {
    this.#worker = worker;
    this.#on_event = on_event;
  }

  /** The worker itself: started, stopping or stopped. */
  worker(word) {
    this.#event(`worker.${word}`, { worker: this.#worker });
  }

  heartbeat(running) {
    const fields = { worker: this.#worker, running, ...this.#counts };
    log('worker.heartbeat', fields);
    this.#event('worker.heartbeat', fields);
  }

  /** Of a job: started, finished, failed, retried, buried, lost or returned. */
  job(word, { topic, id }, fields) {
    if (word in this.#counts) this.#counts[word] += 1;
    if (word === 'lost') log('job.lost', { topic, id, ...fields });
    this.#event(`job.${word}`, { topic, id, ...fields });
  }

  /** A handler failed: its error, with where it was thrown. */
  failure({ topic, id }, error) {
    log('job.failed', { topic, id }, error);
  }

  /** A request did not get through; said once. */
  gone(error) {
    if (this.#gone_since !== null) return;
    this.#gone_since = performance.now();
    const fields = { reason: asReason(error) };
    log('service.lost', fields);
    this.#event('service.lost', fields);
  }

  /** A request got through. */
  back() {
    if (this.#gone_since === null) return;
    const fields = { seconds: secondsSince(this.#gone_since) };
    this.#gone_since = null;
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

/** Seconds, to the millisecond, since a performance.now(). */
export function secondsSince(then) {
  return Math.round(performance.now() - then) / 1000;
}

function log(event, fields, ...more) {
  const words = Object.entries(fields).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  const line = `jobqueue: ${event} ${words.join(' ')}`;
  try {
    console.error(line, ...more);
  } catch {
    console.error(line, ...more.map(asReason)); // an error that cannot be shown
  }
}
