/** The worker: pops jobs of its topics, runs their handlers, and stops gracefully. */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { inspect } from 'node:util';

import { connected } from '../addresses.js';
import { Contact } from './contact.js';
import { Delivery } from './delivery.js';
import { Limits } from './limits.js';
import { checkFunctions, checkNoneIsLeft, checkSeconds } from '../options.js';
import { Outbox } from './outbox.js';
import { Poll } from './poll.js';
import { Report } from './report.js';
import { timerMs } from '../timer.js';

const SIGNALS = ['SIGTERM', 'SIGINT'];
const LAST_WORDS_MS = 1000; // after the grace period: for handlers that react to their signal, and for the releases

/** For the test kit: the handler of each topic of a worker, with the middlewares around it; and the worker's report. */
export let partsOf;

/** `new Worker(url, options)`, then `job(topic, handler)` for each topic, then `await run()`, once. */
export class Worker {
  #addresses;
  #report;
  #contact;
  #outbox;
  #poll;
  #limits;
  #handlers = new Map();
  #middlewares = [];
  #running = new Set(); // the deliveries whose end is not answered yet
  #options;
  #stopped_at = null; // in ms of performance.now()
  #graceIsOver = false;
  #failure = null;
  #changed = () => {};

  static {
    partsOf = (worker) => {
      if (!(worker instanceof Worker)) throw new TypeError(`drain needs a Worker, not ${inspect(worker)}`);
      const handlers = [...worker.#handlers.keys()].map((topic) => [topic, worker.#handlerOf(topic)]);
      return { handlers: new Map(handlers), report: worker.#report };
    };
  }

  constructor(first, second) {
    const { addresses, options } = connected(first, second);
    const {
      concurrency = 10, name = randomName(), poll_s = 20, grace_s = 25, heartbeat_s = 60, keep_alive_s = 3600,
      max_jobs, max_time_s, memory_mb, logger, on_event, on_error, on_death, ...rest
    } = options;
    checkNoneIsLeft(rest);
    checkWorker({ concurrency, name, max_jobs, memory_mb, logger });
    checkSeconds('poll_s', poll_s, { positive: true, most: 60 });
    for (const [option, value] of Object.entries({ grace_s, heartbeat_s, keep_alive_s })) checkSeconds(option, value);
    if (max_time_s !== undefined) checkSeconds('max_time_s', max_time_s, { positive: true });
    checkFunctions({ on_event, on_error, on_death });
    this.#addresses = addresses;
    this.#report = new Report(name, { on_event, on_error, on_death }, logger);
    this.#limits = new Limits({ max_jobs, max_time_s, memory_mb }, (reason) => this.#stop(reason));
    this.#contact = new Contact(this.#report, (error) => this.#fail(error));
    this.#outbox = new Outbox(addresses, this.#contact, (ends) => this.#poll.beside(this.#room(ends)));
    this.#options = { concurrency, name, poll_s, grace_s, heartbeat_s, keep_alive_s };
  }

  /** Registers the handler of a topic's jobs: `async (job, {signal}) => …`. */
  job(topic, handler) {
    if (typeof handler !== 'function') throw new TypeError(`the handler of topic ${topic} must be a function`);
    if (this.#poll) throw new Error('call job(topic, handler) before run()');
    if (this.#handlers.has(topic)) throw new Error(`topic ${topic} already has a handler`);
    this.#handlers.set(topic, handler);
  }

  /** Adds a middleware around every handler, `async (job, next) => …`: the first one added is the outermost. */
  use(middleware) {
    if (typeof middleware !== 'function') throw new TypeError('a middleware must be a function (job, next)');
    if (this.#poll) throw new Error('call use(middleware) before run()');
    this.#middlewares.push(middleware);
  }

  /**
   * Works until stop(), SIGTERM, SIGINT, or a limit.
   * @returns {Promise<boolean>} whether all jobs ended within the grace period
   * @throws {RefusedError} if no retry can help: for an invalid topic name, a topic that the token may not pop, or a
   *   token that was refused for a minute
   */
  async run() {
    const { name, poll_s } = this.#options;
    const topics = [...this.#handlers.keys()];
    if (topics.length === 0) throw new Error('the worker has no handler: register one with job(topic, handler)');
    if (this.#poll) throw new Error('a worker can run only once');
    const begin = (jobs) => this.#begin(jobs);
    this.#poll = new Poll(this.#addresses, this.#contact, { worker: name, wait: poll_s, topics, begin });
    const detach = this.#attach();
    this.#report.started();
    await this.#work().catch((error) => this.#fail(error));
    this.stop();
    const clean = await this.#end();
    this.#report.stopped();
    detach();
    if (this.#failure) throw this.#failure;
    return clean;
  }

  /** Starts no new job; running handlers have `grace_s` seconds to finish. */
  stop() {
    this.#stop('stop');
  }

  /** Stops gracefully because of an error, which run() throws. */
  #fail(error) {
    this.#failure ??= error;
    this.#stop();
  }

  #stop(reason) {
    if (this.#stopped_at !== null) return;
    this.#stopped_at = performance.now();
    if (reason !== undefined) this.#report.stopping(reason);
    this.#poll?.leave();
    this.#changed();
  }

  /** Installs signal handlers and the heartbeat, whose timer keeps the process alive. Returns a function to undo it. */
  #attach() {
    let signals = 0;
    const signalled = () => (++signals === 1 ? this.#stop('signal') : this.#endGrace());
    for (const signal of SIGNALS) process.on(signal, signalled);
    const beat_ms = this.#options.heartbeat_s * 1000;
    const beat = () => { if (beat_ms) this.#report.heartbeat(this.#running.size); };
    const timer = setInterval(beat, timerMs(beat_ms || Infinity));
    const endTime = this.#limits.start();
    return () => {
      clearInterval(timer);
      endTime();
      for (const signal of SIGNALS) process.off(signal, signalled);
    };
  }

  /** Pops as many jobs as can start, until stopped. */
  async #work() {
    while (this.#stopped_at === null) {
      const free = this.#room();
      if (free > 0 && !this.#poll.inFlight) await this.#poll.take(free);
      else await this.#change();
    }
  }

  /** The number of jobs that can start once `ends` are answered. A job keeps its slot until its end is answered. */
  #room(ends = 0) {
    const handling = [...this.#running].filter((delivery) => delivery.handling).length;
    return Math.min(this.#options.concurrency - handling - this.#outbox.open + ends, this.#limits.left);
  }

  #begin(jobs) {
    for (const job of jobs) {
      const delivery = new Delivery(job, this.#outbox, this.#report);
      this.#running.add(delivery);
      this.#limits.jobBegan();
      // A job with ttr 0 cannot be released: it is run even now.
      const end = this.#stopped_at !== null && job.ttr > 0
        ? delivery.giveBack()
        : delivery.run(this.#limitedHandlerOf(job.topic), this.#options.keep_alive_s);
      end.then(() => {
        this.#running.delete(delivery);
        this.#changed();
      });
    }
    this.#changed(); // a poll may fill the slots that are still free
  }

  /** The handler of a topic, with the middlewares around it. */
  #handlerOf(topic) {
    return this.#middlewares.reduceRight(around, this.#handlers.get(topic));
  }

  /** The same, followed by a check of the limits, before the job's end brings the next job. */
  #limitedHandlerOf(topic) {
    const handler = this.#handlerOf(topic);
    return async (job, context) => {
      try {
        await handler(job, context);
      } finally {
        this.#limits.jobEnded();
      }
    };
  }

  /** Waits for the running handlers; resolves to true if all of them ended within the grace period. */
  async #end() {
    const left_ms = this.#stopped_at + this.#options.grace_s * 1000 - performance.now();
    const grace = setTimeout(() => this.#endGrace(), timerMs(left_ms));
    while (this.#running.size > 0 && !this.#graceIsOver) await this.#change();
    clearTimeout(grace);
    const clean = this.#running.size === 0;
    if (!clean) await this.#giveUp();
    this.#outbox.close();
    this.#addresses.close();
    return clean;
  }

  /** Releases the jobs that are still running, and lets handlers that react to their signal end. */
  async #giveUp() {
    let late = false;
    const last = setTimeout(() => {
      late = true;
      this.#outbox.close();
      this.#changed();
    }, LAST_WORDS_MS);
    await Promise.all([...this.#running].map((delivery) => delivery.stop()));
    while (this.#running.size > 0 && !late) await this.#change();
    clearTimeout(last);
  }

  #endGrace() {
    this.#graceIsOver = true;
    this.#changed();
  }

  /** Resolves when a slot is free, the worker is stopped, or the grace period is over. */
  #change() {
    return new Promise((resolve) => { this.#changed = resolve; });
  }
}

/**
 * A handler inside a middleware. If the middleware forgets to await next(), the handler is awaited here, and its error
 * counts as the job's: otherwise the job would be finished before its work is done.
 */
function around(inner, middleware) {
  return async (job, context) => {
    const running = new Set();
    const next = () => {
      const run = (async () => inner(job, context))();
      const given = run.finally(() => running.delete(given));
      running.add(given);
      return given;
    };
    const result = await middleware(job, next);
    await Promise.all(running);
    return result;
  };
}

function checkWorker({ concurrency, name, max_jobs = 1, memory_mb = 1, logger }) {
  for (const [option, value] of Object.entries({ concurrency, max_jobs })) {
    if (!Number.isInteger(value) || value < 1) throw new RangeError(`${option} must be an integer of at least 1`);
  }
  if (typeof name !== 'string' || name.length < 1 || name.length > 128) {
    throw new RangeError('name must be a string of 1 to 128 characters');
  }
  if (!(typeof memory_mb === 'number' && memory_mb > 0)) throw new RangeError('memory_mb must be a number above 0');
  const writes = typeof logger?.info === 'function' && typeof logger.error === 'function';
  if (logger !== undefined && !writes) throw new TypeError('logger must have the methods info and error');
}

function randomName() {
  return `${hostname().slice(0, 64)}-${process.pid}-${randomBytes(3).toString('hex')}`;
}
