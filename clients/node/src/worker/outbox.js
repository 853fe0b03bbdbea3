/**
 * The outbox: sends a worker's finish, release and bury (the ends of jobs), and its touches. One request with ends is
 * in flight at a time; later ends are queued and sent together, along with a pop for the next jobs. An end is sent
 * again until it is answered.
 */
import { UnreachableError } from '../errors.js';
import { isForNow, pause, pauseBefore } from '../retry.js';

const MOST_COMMANDS = 999; // the service's limit for a batch, minus one for the pop that follows

export class Outbox {
  #addresses;
  #contact;
  #popBeside;
  #open = 0;
  #waiting = []; // {command, resolve, maybe_done}
  #touches = []; // {command, resolve}
  #sending = false;
  #closed = new AbortController();

  /**
   * @param {(ends: number) => {command: object, resolve: (answer: object) => void} | null} popBeside returns the pop
   *   to send with this many ends; its `resolve` receives the answer, or the error, after the ends received theirs
   */
  constructor(addresses, contact, popBeside) {
    this.#addresses = addresses;
    this.#contact = contact;
    this.#popBeside = popBeside;
  }

  /** The number of ends that are not answered yet, including those in flight. */
  get open() {
    return this.#open;
  }

  /** Sends an end. Resolves to the answer or a permanent refusal (not thrown); undefined if the outbox closes first. */
  send(command) {
    return new Promise((resolve) => {
      if (this.#closed.signal.aborted) return resolve();
      this.#open += 1;
      this.#waiting.push({ command, resolve, maybe_done: false });
      if (this.#sending) return;
      this.#sending = true;
      setImmediate(() => this.#sendAll()); // so that all jobs that end in this turn of the loop are sent together
    });
  }

  /**
   * Sends a touch. Touches do not wait for the request in flight: an instance that hangs must not cost leases. They are
   * not retried here; the lease knows for how long a retry helps. Resolves to the answer or the error (not thrown), or
   * to undefined if the outbox closes first.
   */
  touch(command) {
    return new Promise((resolve) => {
      this.#touches.push({ command, resolve });
      if (this.#touches.length === 1) setImmediate(() => this.#touchAll());
    });
  }

  /** Sends nothing more, and resolves all ends that wait. */
  close() {
    this.#closed.abort();
    for (const { resolve } of this.#waiting.splice(0)) resolve();
  }

  async #sendAll() {
    let route = this.#addresses.route();
    for (let failures = 0; this.#waiting.length > 0;) {
      const sent = this.#waiting.splice(0, MOST_COMMANDS);
      // No pop on a retry: its jobs would pile up behind the ends that keep being refused.
      const error = await this.#exchange(route, sent, failures === 0 ? this.#popBeside(sent.length) : null);
      failures = error ? failures + 1 : 0;
      if (!error) route = this.#addresses.route();
      else if (!route.hasAnother(error)) await this.#pause(failures, error);
    }
    this.#sending = false;
  }

  async #pause(failures, error) {
    this.#contact.failed(error);
    await pause(pauseBefore(failures, error), this.#closed.signal).catch(() => {});
  }

  /** Sends and settles a batch. Ends to send again go back to the front; then returns an error of theirs, else null. */
  async #exchange(route, sent, pop) {
    const answers = await this.#answers(route, pop ? [...sent, pop] : sent);
    const again = sent.filter((each, place) => !settled(each, answers[place]));
    this.#open -= sent.length - again.length;
    this.#waiting.unshift(...again);
    pop?.resolve(answers[sent.length]);
    return again.length > 0 ? firstForNow(answers) : null;
  }

  #touchAll() {
    while (this.#touches.length > 0) {
      const sent = this.#touches.splice(0, MOST_COMMANDS);
      this.#touched(sent).then((answers) => sent.forEach(({ resolve }, place) => resolve(answers[place])));
    }
  }

  async #touched(sent) {
    const route = this.#addresses.route();
    for (;;) {
      const answers = await this.#answers(route, sent);
      const error = firstForNow(answers);
      if (error && route.hasAnother(error)) continue;
      if (error) this.#contact.failed(error);
      return answers;
    }
  }

  /** For each command its answer or its error; undefined once the outbox is closed. */
  async #answers(route, sent) {
    const { signal } = this.#closed;
    const answers = await route
      .ask(sent.map(({ command }) => command), signal)
      .catch((error) => sent.map(() => error));
    if (signal.aborted) return sent.map(() => undefined);
    if (!firstForNow(answers)) this.#contact.answered();
    return answers;
  }
}

/** The first temporary error, or undefined. */
function firstForNow(answers) {
  return answers.find((answer) => answer !== undefined && isForNow(answer));
}

/** Resolves an end; returns false if its answer is temporary, so that the end must be sent again. */
function settled(each, answer) {
  if (answer !== undefined && isForNow(answer)) {
    each.maybe_done ||= answer instanceof UnreachableError ? answer.maybe_done : answer.code === 'UNAVAILABLE';
    return false;
  }
  each.resolve(each.maybe_done && wasDone(each.command, answer) ? { success: true, state: answer.state } : answer);
  return true;
}

/**
 * Whether the refusal only means that an earlier attempt was executed: no worker has the job any longer. A repeated
 * finish succeeds for as long as the service remembers the job, so a stale lease means that another worker has the job.
 */
function wasDone({ command }, answer) {
  return answer?.status === 404 || (answer?.status === 409 && command !== 'finish');
}
