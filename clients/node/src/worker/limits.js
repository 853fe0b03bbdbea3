/** The limits of a worker's life: it stops after some number of jobs or some time, or when it uses too much memory. */
import { timerMs } from '../timer.js';

const MEBIBYTE = 1024 * 1024;

export class Limits {
  #max_jobs;
  #max_time_s;
  #memory_mb;
  #stop;
  #begun = 0;
  #ended = 0;
  #timer;

  /**
   * @param {object} limits numbers, or undefined for none
   * @param {(reason: string) => void} stop called with max_jobs, max_time or memory
   */
  constructor({ max_jobs = Infinity, max_time_s, memory_mb = Infinity }, stop) {
    this.#max_jobs = max_jobs;
    this.#max_time_s = max_time_s;
    this.#memory_mb = memory_mb;
    this.#stop = stop;
  }

  /** The number of jobs that may still begin. */
  get left() {
    return this.#max_jobs - this.#begun;
  }

  /** Starts the time limit. Returns a function that ends it. */
  start() {
    if (this.#max_time_s === undefined) return () => {};
    this.#timer = setTimeout(() => this.#stop('max_time'), timerMs(this.#max_time_s * 1000));
    return () => clearTimeout(this.#timer);
  }

  jobBegan() {
    this.#begun += 1;
  }

  jobEnded() {
    this.#ended += 1;
    if (this.#ended >= this.#max_jobs) this.#stop('max_jobs');
    else if (this.#isOverMemory()) this.#stop('memory');
  }

  #isOverMemory() {
    return this.#memory_mb < Infinity && process.memoryUsage.rss() > this.#memory_mb * MEBIBYTE;
  }
}
