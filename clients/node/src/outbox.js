/**
 * The way out for a worker's finish, release and bury, and for its touches. Of the former one request at a time is on
 * its way; what comes meanwhile gathers and goes together. Each is repeated until it is answered.
 */
import { UnreachableError } from './errors.js';
import { isForNow, pause, pauseBefore } from './retry.js';

const MOST = 1000; // commands that the service takes in a request

export class Outbox {
  #client;
  #report;
  #waiting = []; // {command, resolve, maybe_done}
  #touches = []; // {command, resolve}
  #sending = false;
  #closed = new AbortController();

  constructor(client, report) {
    this.#client = client;
    this.#report = report;
  }

  /** The answer, or the refusal (not thrown) that no repetition can help; undefined when the outbox closed before. */
  send(command) {
    return new Promise((resolve) => {
      if (this.#closed.signal.aborted) return resolve();
      this.#waiting.push({ command, resolve, maybe_done: false });
      if (this.#sending) return;
      this.#sending = true;
      setImmediate(() => this.#sendAll()); // so that what ends in this turn of the loop goes together
    });
  }

  /**
   * A touch goes beside what is on its way: an instance that hangs must not cost leases. It is not repeated, for how
   * long that helps the lease knows. The answer, or the error, not thrown; undefined when the outbox closed before.
   */
  touch(command) {
    return new Promise((resolve) => {
      this.#touches.push({ command, resolve });
      if (this.#touches.length === 1) setImmediate(() => this.#touchAll());
    });
  }

  /** Nothing is sent any more, and nobody waits. */
  close() {
    this.#closed.abort();
    for (const { resolve } of this.#waiting.splice(0)) resolve();
  }

  async #sendAll() {
    for (let failures = 0; this.#waiting.length > 0;) {
      const error = await this.#exchange(this.#waiting.splice(0, MOST));
      failures = error ? failures + 1 : 0;
      if (error) await pause(pauseBefore(failures, error), this.#closed.signal).catch(() => {});
    }
    this.#sending = false;
  }

  /** Send, hand out the answers, and put back at the front what was refused for now; the error of the latter. */
  async #exchange(sent) {
    const answers = await this.#answers(sent);
    this.#waiting.unshift(...sent.filter((each, place) => !settled(each, answers[place])));
    return answers.find(isForNow);
  }

  #touchAll() {
    while (this.#touches.length > 0) {
      const sent = this.#touches.splice(0, MOST);
      this.#answers(sent).then((answers) => sent.forEach(({ resolve }, place) => resolve(answers[place])));
    }
  }

  /** To each its answer or its error; undefined when the outbox is closed. */
  async #answers(sent) {
    const { signal } = this.#closed;
    const answers = await this.#client
      .batch(sent.map(({ command }) => command), { signal })
      .catch((error) => sent.map(() => error));
    if (signal.aborted) return sent.map(() => undefined);
    const gone = answers.find(isForNow);
    if (gone) this.#report.gone(gone);
    else this.#report.back();
    return answers;
  }
}

/** Hand out an answer; false when it is to be asked again. */
function settled(each, answer) {
  if (answer !== undefined && isForNow(answer)) {
    each.maybe_done ||= answer instanceof UnreachableError ? answer.maybe_done : answer.code === 'UNAVAILABLE';
    return false;
  }
  each.resolve(each.maybe_done && wasDone(each.command, answer) ? { success: true } : answer);
  return true;
}

/**
 * Whether a repetition is refused because the request before did it: the job is in no hands any more. A finish succeeds
 * again while the job is remembered, so that a stale one says that another worker has it.
 */
function wasDone({ command }, answer) {
  return answer?.status === 404 || (answer?.status === 409 && command !== 'finish');
}
