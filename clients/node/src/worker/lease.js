/** The lease of a job: kept alive while its handler runs, and reported when it is lost. */
import { isForNow, pauseBefore } from '../retry.js';

export class Lease {
  #job;
  #outbox;
  #lose;
  #touch_until; // in ms of performance.now(), like all times here
  #since; // when the lease began
  #failures = 0; // touches that failed since then
  #touching;
  #ending;

  /**
   * @param {number} keep_alive_s seconds from now during which the lease is touched
   * @param {(reason: string) => void} lose called once the lease is lost: deleted, stale or expired
   */
  constructor(job, outbox, keep_alive_s, lose) {
    this.#job = job;
    this.#outbox = outbox;
    this.#lose = lose;
    this.#touch_until = performance.now() + keep_alive_s * 1000;
    this.#runsFrom(performance.now());
  }

  /** Stops watching the lease. */
  end() {
    clearTimeout(this.#touching);
    clearTimeout(this.#ending);
    this.#job = null;
  }

  #runsFrom(then) {
    this.#since = then;
    this.#failures = 0;
    const ttr_ms = this.#job.ttr * 1000;
    clearTimeout(this.#ending);
    this.#ending = setTimeout(() => this.#lose('expired'), then + ttr_ms - performance.now());
    this.#touchIn(then + ttr_ms / 3 - performance.now());
  }

  #touchIn(ms) {
    clearTimeout(this.#touching);
    this.#touching = setTimeout(() => this.#touch(), ms);
  }

  async #touch() {
    const now = performance.now();
    if (now >= this.#touch_until) return;
    const { id, lease, ttr } = this.#job;
    this.#touchIn((ttr * 1000) / 3); // answered or not: a request that hangs must not delay the next touch
    const answer = await this.#outbox.touch({ command: 'touch', id, lease });
    if (this.#job === null || answer === undefined || now < this.#since) return;
    if (answer.success) return this.#runsFrom(now);
    const loss = lossOf(answer);
    if (loss) this.#lose(loss);
    else if (isForNow(answer)) this.#touchIn(pauseBefore(++this.#failures, answer));
  }
}

/** Why the job is lost, given the refusal of a command with its lease; undefined if the job is not lost. */
export function lossOf({ code, state }) {
  if (code === 'NOT_RESERVED' && state === 'finished') return 'stale'; // finished by someone else
  return { NOT_FOUND: 'deleted', STALE_LEASE: 'stale', NOT_RESERVED: 'expired' }[code];
}
