/** The attempts of one call of the client: where each goes, and for how long more are made. */
import { UnreachableError } from './errors.js';
import { foundDead, Retries } from './retry.js';

export class Tries {
  #route;
  #retries;
  #maybe_done = false;

  constructor(route, retry_for_s) {
    this.#route = route;
    this.#retries = new Retries(retry_for_s);
  }

  async ask(asked, signal) {
    try {
      const answer = await this.#route.ask(asked, signal);
      if (!Array.isArray(answer)) return answer;
      const settled = this.#maybe_done ? answer.map((each, place) => foundDead(asked[place], each)) : answer;
      this.#maybe_done ||= answer.some((each) => each.code === 'UNAVAILABLE');
      return settled;
    } catch (error) {
      const settled = this.#maybe_done ? foundDead(asked, error) : error;
      if (settled !== error) return settled;
      // An earlier attempt may have been executed, even if this one was not.
      if (error instanceof UnreachableError) this.#maybe_done = error.maybe_done ||= this.#maybe_done;
      else this.#maybe_done ||= error.code === 'UNAVAILABLE';
      throw error;
    }
  }

  /** Waits for the next attempt; returns false if it would come too late. Another address is asked at once. */
  async another(error, signal) {
    this.#retries.begin();
    return this.#route.hasAnother(error) || this.#retries.pause(error, signal);
  }
}
