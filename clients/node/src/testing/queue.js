/** The queue as a test sees it: what waits in it, its clock, and running a worker's handlers. */
import assert from 'node:assert/strict';
import { inspect, isDeepStrictEqual } from 'node:util';

import { Client } from '../client.js';
import { drained } from './draining.js';

const NEAR_S = 1; // for an assert, times that differ by less are equal: code under test reads the real clock
const UNIT_S = { seconds: 1, minutes: 60, hours: 3600, days: 86_400 };

/** A queue on a test service, whose clock stands still until `advance`. */
export class Queue {
  #url = null;
  #client = null;

  /** Uses the test service at an address; call `reset` to empty it. */
  connect(url) {
    this.#client = new Client(url);
    this.#url = url;
  }

  /** The service's address, for the code under test. */
  get url() {
    return connected(this.#url);
  }

  /** A client of the service. */
  get client() {
    return connected(this.#client);
  }

  /** Forgets all jobs and topics, and sets the clock to the real time. */
  async reset() {
    await this.#ask({ command: 'reset' });
  }

  /** The time of the queue's clock, as a Date. */
  async now() {
    return new Date((await this.#clock(0)) * 1000);
  }

  /**
   * Lets time pass. Afterwards, all jobs that fell due are ready, and leases that ran out have ended.
   * @param {number|object} time seconds, or `{ seconds, minutes, hours, days }`
   */
  async advance(time) {
    const parts = typeof time === 'number' ? { seconds: time } : time;
    if (!isSpan(parts)) {
      const units = Object.keys(UNIT_S).join(', ');
      throw new TypeError(`advance needs seconds, or an object with numbers of ${units}, not ${inspect(time)}`);
    }
    await this.#clock(Object.entries(parts).reduce((sum, [unit, value]) => sum + value * UNIT_S[unit], 0));
  }

  /**
   * Runs the worker's handlers, here and one after the other, until none of its topics has a ready job. Each job ends
   * as in the worker itself. An error that a handler threw (other than Retry, Bury and Lost) is thrown once its job has
   * ended, unless `raise_errors` is false. Returns what was done, in order: `{ job, outcome, state, error }`.
   */
  async drain(worker, { raise_errors = true } = {}) {
    return drained(this.client, worker, raise_errors);
  }

  /** The delayed and ready jobs of a topic, or of all topics, in the order in which they are due. */
  async waiting(topic) {
    const jobs = [...await this.#jobs(topic, 'delayed'), ...await this.#jobs(topic, 'ready')];
    return jobs.sort((one, other) => one.delay - other.delay || one.due - other.due);
  }

  /** The dead letters of a topic, or of all topics. */
  async dead(topic) {
    return this.#jobs(topic, 'dead');
  }

  /**
   * Fails unless exactly one waiting job of the topic is as described; returns this job.
   * @param {{id, body, delay, at}} wanted `delay`: seconds until it is ready, by the queue's clock; `at`: when it is
   *   due, as a Date or unix seconds; both within a second
   */
  async assertWaiting(topic, wanted = {}) {
    const waiting = await this.waiting(topic);
    const found = waiting.filter((job) => fits(job, wanted));
    if (found.length === 1) return found[0];
    return assert.fail(`${found.length} jobs, not one, wait in ${topic} with ${inspect(wanted)}; ${listed(waiting)}`);
  }

  /** Fails if any job of the topic, or of any topic, is delayed or ready. */
  async assertNoneWaiting(topic) {
    const waiting = await this.waiting(topic);
    assert.ok(waiting.length === 0, listed(waiting));
  }

  /** Closes the client's connections. */
  close() {
    this.#client?.close();
  }

  async #clock(advance) {
    return (await this.#ask({ command: 'clock', advance })).now;
  }

  async #ask(command) {
    const [answer] = await this.client.batch([command]);
    if (answer instanceof Error) throw answer;
    return answer;
  }

  async #jobs(topic, state) {
    const now = await this.#clock(0);
    const topics = topic === undefined ? await this.#topics() : [topic];
    const found = await Promise.all(topics.map((each) => (
      all((cursor) => this.client.peek(each, { state, cursor }), ({ jobs }) => jobs)
    )));
    return found.flat().map((details) => waitingJob(details, now));
  }

  #topics() {
    return all((cursor) => this.client.topics({ cursor }), ({ topics }) => topics.map((each) => each.topic));
  }
}

function isSpan(parts) {
  return typeof parts === 'object' && parts !== null
    && Object.entries(parts).every(([unit, value]) => Object.hasOwn(UNIT_S, unit) && typeof value === 'number');
}

/** The rows of all pages. */
async function all(page, rows) {
  const found = [];
  for (let cursor; cursor !== null;) {
    const answer = await page(cursor);
    found.push(...rows(answer));
    cursor = answer.cursor;
  }
  return found;
}

function waitingJob(details, now) {
  const { id, topic, value: body, state, due, until } = details;
  return { id, topic, body, state, due, delay: state === 'delayed' ? Math.max(until - now, 0) : 0, details };
}

function fits(job, { id, delay, at, ...rest }) {
  return (id === undefined || job.id === id)
    && (!('body' in rest) || isDeepStrictEqual(job.body, rest.body))
    && (delay === undefined || Math.abs(job.delay - delay) <= NEAR_S)
    && (at === undefined || Math.abs(job.due - (at instanceof Date ? at.getTime() / 1000 : at)) <= NEAR_S);
}

function listed(jobs) {
  if (jobs.length === 0) return 'no job is waiting';
  const lines = jobs.map(({ topic, id, state, delay, body }) => {
    const when = state === 'delayed' ? `due in ${Math.round(delay)} s` : state;
    return `\n  ${topic} ${id}, ${when}: ${inspect(body, { breakLength: Infinity })}`;
  });
  return `waiting now:${lines.join('')}`;
}

function connected(value) {
  if (value === null) throw new Error('the queue is there once the tests begin: use it inside a test or a hook');
  return value;
}
