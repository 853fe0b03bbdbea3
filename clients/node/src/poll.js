/** A worker's long poll: one at a time, repeated until it is answered, ended by `leave`. */
import { isForNow, pause, pauseBefore } from './retry.js';

const LEAVE_MS = 1000; // for a poll to come back after its `leave`; then its connection is closed
const MOST = 1000; // jobs that the service gives at once

export class Poll {
  #client;
  #report;
  #worker;
  #wait;
  #topics;
  #turn = 0; // whose of the topics it is to be the first
  #waiting = false;
  #left = new AbortController();
  #cut = new AbortController();
  #cutting;

  /** @param {number} wait seconds, 60 at most */
  constructor(client, report, { worker, wait, topics }) {
    this.#client = client;
    this.#report = report;
    this.#worker = worker;
    this.#wait = wait;
    this.#topics = topics;
  }

  /**
   * Up to `count` jobs; none after `wait` seconds, and when it has left.
   * @throws {RefusedError} that no repetition can help
   */
  async take(count) {
    for (let asked = 1; !this.#left.signal.aborted; asked++) {
      try {
        // After a failure without waiting: else only the next job would tell that the service is back.
        const jobs = await this.#ask(Math.min(count, MOST), asked === 1 ? this.#wait : 0);
        this.#report.back();
        return jobs;
      } catch (error) {
        if (this.#cut.signal.aborted) break;
        if (!isForNow(error) && error.code !== 'INTERNAL') throw error;
        this.#report.gone(error);
        await pause(pauseBefore(asked, error), this.#left.signal).catch(() => {});
      }
    }
    return [];
  }

  /** End what waits, and ask no more. */
  leave() {
    this.#left.abort();
    if (!this.#waiting) return;
    this.#cutting = setTimeout(() => this.#cut.abort(), LEAVE_MS);
    this.#client.leave(this.#worker).catch(() => {});
  }

  async #ask(count, wait) {
    const options = { wait, worker: this.#worker, signal: this.#cut.signal };
    this.#waiting = true;
    try {
      return await this.#client.popMany(this.#turned(), count, options);
    } finally {
      this.#waiting = false;
      clearTimeout(this.#cutting);
    }
  }

  /** The topics, each of them the first in its turn. */
  #turned() {
    this.#turn = (this.#turn + 1) % this.#topics.length;
    return [...this.#topics.slice(this.#turn), ...this.#topics.slice(0, this.#turn)];
  }
}
