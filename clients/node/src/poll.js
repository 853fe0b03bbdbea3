/**
 * A worker's pops, one at a time: a long poll, repeated until it is answered and ended by `leave`; or one that goes with
 * the ends of jobs, and does not wait.
 */
import { jobsOf } from './client.js';
import { JobQueueError } from './errors.js';
import { isForNow, pause, pauseBefore } from './retry.js';

const LEAVE_MS = 1000; // for a poll to come back after its `leave`; then its connection is closed
const MOST = 1000; // jobs that the service gives at once

export class Poll {
  #client;
  #report;
  #worker;
  #wait;
  #topics;
  #begin;
  #turn = 0; // whose of the topics it is to be the first
  #isOut = false; // a pop of either kind; a poll in its pauses, too
  #waiting = false;
  #left = new AbortController();
  #cut = new AbortController();
  #cutting;

  /**
   * @param {number} wait seconds, 60 at most
   * @param {(jobs: Job[]) => void} begin called with the jobs of each pop before another pop goes out
   */
  constructor(client, report, { worker, wait, topics, begin }) {
    this.#client = client;
    this.#report = report;
    this.#worker = worker;
    this.#wait = wait;
    this.#topics = topics;
    this.#begin = begin;
  }

  get isOut() {
    return this.#isOut;
  }

  /**
   * Wait for up to `count` jobs; none come after `wait` seconds, and when it has left.
   * @throws {RefusedError} that no repetition can help
   */
  async take(count) {
    this.#isOut = true;
    try {
      this.#begin(await this.#jobs(count));
    } finally {
      this.#isOut = false;
    }
  }

  /**
   * A pop to send with the ends of jobs, and what takes its answer; null when one is out already, and when it has left.
   * After an error nothing comes, and there is room for a poll, which then meets it too.
   */
  beside(count) {
    if (this.#isOut || this.#left.signal.aborted) return null;
    this.#isOut = true;
    const command = { command: 'pop', topics: this.#turned(), count: Math.min(count, MOST), worker: this.#worker };
    const resolve = (answer) => {
      this.#isOut = false;
      this.#begin(brought(answer));
    };
    return { command, resolve };
  }

  async #jobs(count) {
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

/** The jobs that a pop brought; none when it was refused, or what answered is no job queue. */
function brought(answer) {
  try {
    return answer?.success ? jobsOf(answer) : [];
  } catch (error) {
    if (error instanceof JobQueueError) return [];
    throw error;
  }
}
