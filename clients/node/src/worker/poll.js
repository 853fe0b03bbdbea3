/**
 * The pops of a worker, one at a time: a long poll, which is retried until it is answered and which `leave` ends, or a
 * pop that is sent with the ends of jobs and does not wait.
 */
import { JobQueueError } from '../errors.js';
import { jobsOf } from '../reply.js';
import { isForNow, pause, pauseBefore } from '../retry.js';
import { tracing } from '../tracing.js';

const LEAVE_MS = 1000; // for a poll to return after its `leave`; then its connection is closed
const MOST_JOBS = 1000; // the service's limit for a pop

export class Poll {
  #addresses;
  #contact;
  #worker;
  #wait;
  #topics;
  #begin;
  #turn = 0; // the index of the topic that comes first
  #inFlight = false; // true during a pop of either kind, and while a poll pauses before a retry
  #waiting = false;
  #left = new AbortController();
  #cut = new AbortController();
  #cutting;

  /**
   * @param {number} wait seconds, 60 at most
   * @param {(jobs: Job[]) => void} begin called with the jobs of each pop before the next pop is sent
   */
  constructor(addresses, contact, { worker, wait, topics, begin }) {
    this.#addresses = addresses;
    this.#contact = contact;
    this.#worker = worker;
    this.#wait = wait;
    this.#topics = topics;
    this.#begin = begin;
  }

  get inFlight() {
    return this.#inFlight;
  }

  /**
   * Waits for up to `count` jobs, for `wait` seconds or until leave() is called.
   * @throws {RefusedError} if no retry can help
   */
  async take(count) {
    this.#inFlight = true;
    try {
      this.#begin(await this.#jobs(count));
    } finally {
      this.#inFlight = false;
    }
  }

  /**
   * A pop to send with the ends of jobs, and the function for its answer; null if there is no room, a pop is in
   * flight, or leave() was called.
   * An error in its answer is ignored: there is still room, and the next poll will report the error.
   */
  beside(count) {
    if (count < 1 || this.#inFlight || this.#left.signal.aborted) return null;
    this.#inFlight = true;
    const most = Math.min(count, MOST_JOBS);
    const command = { command: 'pop', topics: this.#rotated(), count: most, worker: this.#worker };
    const received = tracing?.receiving();
    const resolve = (answer) => {
      this.#inFlight = false;
      const jobs = jobsIn(answer);
      received?.(jobs);
      this.#begin(jobs);
    };
    return { command, resolve };
  }

  async #jobs(count) {
    const route = this.#addresses.route();
    for (let asked = 1; !this.#left.signal.aborted; asked++) {
      try {
        // Do not wait after a failure, or only the next job would show that the service is back.
        const jobs = await this.#ask(route, Math.min(count, MOST_JOBS), asked === 1 ? this.#wait : 0);
        this.#contact.answered();
        return jobs;
      } catch (error) {
        if (this.#cut.signal.aborted) break;
        if (!isForNow(error) && error.code !== 'INTERNAL') throw error;
        if (!route.hasAnother(error)) await this.#pause(asked, error);
      }
    }
    return [];
  }

  async #pause(asked, error) {
    this.#contact.failed(error);
    await pause(pauseBefore(asked, error), this.#left.signal).catch(() => {});
  }

  /** Ends the waiting poll, and sends no more. */
  leave() {
    this.#left.abort();
    if (!this.#waiting) return;
    this.#cutting = setTimeout(() => this.#cut.abort(), LEAVE_MS);
    this.#sendLeave().catch(() => {});
  }

  /** Sends `leave` to any one address, from which it reaches every instance. */
  async #sendLeave() {
    const route = this.#addresses.route();
    for (;;) {
      try {
        return await route.ask({ command: 'leave', worker: this.#worker });
      } catch (error) {
        if (!route.hasAnother(error)) throw error;
      }
    }
  }

  async #ask(route, count, wait) {
    const command = { command: 'pop', topics: this.#rotated(), count, wait, worker: this.#worker };
    const received = tracing?.receiving();
    this.#waiting = true;
    try {
      const jobs = jobsOf(await route.ask(command, this.#cut.signal));
      received?.(jobs);
      return jobs;
    } finally {
      this.#waiting = false;
      clearTimeout(this.#cutting);
    }
  }

  /** The topics, rotated so that each is first in turn. */
  #rotated() {
    this.#turn = (this.#turn + 1) % this.#topics.length;
    return [...this.#topics.slice(this.#turn), ...this.#topics.slice(0, this.#turn)];
  }
}

/** The jobs of a pop; none if it was refused, or the reply is not from a job queue. */
function jobsIn(answer) {
  try {
    return answer?.success ? jobsOf(answer) : [];
  } catch (error) {
    if (error instanceof JobQueueError) return [];
    throw error;
  }
}
