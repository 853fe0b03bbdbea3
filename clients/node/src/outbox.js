/**
 * The way out for a worker's finish, release and bury, and for its touches. Of the former, the ends of jobs, one request
 * at a time is on its way; what comes meanwhile gathers and goes together, and a pop for the jobs that follow with it.
 * Each end is repeated until it is answered.
 */
import { UnreachableError } from './errors.js';
import { isForNow, pause, pauseBefore } from './retry.js';

const MOST = 999; // commands that the service takes in a request, but for a pop behind them

export class Outbox {
  #client;
  #report;
  #popBeside;
  #open = 0;
  #waiting = []; // {command, resolve, maybe_done}
  #touches = []; // {command, resolve}
  #sending = false;
  #closed = new AbortController();

  /**
   * @param {(ends: number) => {command: object, resolve: (answer: object) => void} | null} popBeside the pop to send
   *   with so many ends; it is told its answer, or the error, when the ends were told theirs
   */
  constructor(client, report, popBeside) {
    this.#client = client;
    this.#report = report;
    this.#popBeside = popBeside;
  }

  /** How many ends were not answered yet. */
  get open() {
    return this.#open;
  }

  /** The answer, or the refusal (not thrown) that no repetition can help; undefined when the outbox closed before. */
  send(command) {
    return new Promise((resolve) => {
      if (this.#closed.signal.aborted) return resolve();
      this.#open += 1;
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
      const sent = this.#waiting.splice(0, MOST);
      // No pop with a repetition: else the ends that are refused for now would heap up.
      const error = await this.#exchange(sent, failures === 0 ? this.#popBeside(sent.length) : null);
      failures = error ? failures + 1 : 0;
      if (error) await pause(pauseBefore(failures, error), this.#closed.signal).catch(() => {});
    }
    this.#sending = false;
  }

  /** Send, hand out the answers, and put back at the front what was refused for now; the error of the latter. */
  async #exchange(sent, pop) {
    const answers = await this.#answers(pop ? [...sent, pop] : sent);
    const again = sent.filter((each, place) => !settled(each, answers[place]));
    this.#open -= sent.length - again.length;
    this.#waiting.unshift(...again);
    pop?.resolve(answers[sent.length]);
    return again.length > 0 ? answers.find(isForNow) : null;
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
