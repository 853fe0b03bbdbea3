/** A worker's contact with the service: reports when it is lost and when it is back, and decides when to give up. */
import { UnreachableError } from '../errors.js';

const PATIENCE_MS = 60_000; // with a token that is refused: time to correct it

export class Contact {
  #report;
  #giveUp;
  #patience_ms;
  #refused_since = null; // the first UNAUTHORIZED after the last answer of another kind

  /** @param {(error: UnauthorizedError) => void} giveUp called once the token has been refused for too long */
  constructor(report, giveUp, patience_ms = PATIENCE_MS) {
    this.#report = report;
    this.#giveUp = giveUp;
    this.#patience_ms = patience_ms;
  }

  /** A request was answered. */
  answered() {
    this.#refused_since = null;
    this.#report.serviceAnswered();
  }

  /** A request failed, for now. A failure without an answer says nothing about the token. */
  failed(error) {
    this.#report.serviceFailed(error);
    if (error instanceof UnreachableError) return;
    this.#refused_since = error.code === 'UNAUTHORIZED' ? this.#refused_since ?? performance.now() : null;
    if (performance.now() - (this.#refused_since ?? Infinity) >= this.#patience_ms) this.#giveUp(error);
  }
}
