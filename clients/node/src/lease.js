/** Keeps the lease of a job alive while its handler runs, and notices when it is lost. */

export class Lease {
  #job;
  #outbox;
  #lose;
  #touch_until; // by performance.now(), as all times here
  #touching;
  #ending;

  /**
   * @param {number} keep_alive_s for so long from now it is touched
   * @param {(reason: string) => void} lose called when it is lost: deleted, stale or expired
   */
  constructor(job, outbox, keep_alive_s, lose) {
    this.#job = job;
    this.#outbox = outbox;
    this.#lose = lose;
    this.#touch_until = performance.now() + keep_alive_s * 1000;
    this.#runsFrom(performance.now());
  }

  /** It is watched no more. */
  end() {
    clearTimeout(this.#touching);
    clearTimeout(this.#ending);
    this.#job = null;
  }

  #runsFrom(then) {
    const ttr_ms = this.#job.ttr * 1000;
    clearTimeout(this.#ending);
    this.#ending = setTimeout(() => this.#lose('expired'), then + ttr_ms - performance.now());
    this.#touching = setTimeout(() => this.#touch(), then + ttr_ms / 3 - performance.now());
  }

  async #touch() {
    const now = performance.now();
    if (now >= this.#touch_until) return;
    const { id, lease } = this.#job;
    const answer = await this.#outbox.send({ command: 'touch', id, lease });
    if (this.#job === null || answer === undefined) return;
    if (answer.success) return this.#runsFrom(now);
    const loss = lossOf(answer);
    if (loss) this.#lose(loss);
    else this.#touching = setTimeout(() => this.#touch(), (this.#job.ttr * 1000) / 3);
  }
}

/** What a refused command says about a job that this worker had; undefined: nothing. */
export function lossOf({ code }) {
  return { NOT_FOUND: 'deleted', STALE_LEASE: 'stale', NOT_RESERVED: 'expired' }[code];
}
