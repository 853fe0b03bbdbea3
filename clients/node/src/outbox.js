/**
 * The way out for a worker's finish, touch, release and bury. One request at a time is on its way; what comes meanwhile
 * gathers and goes together. Each is repeated until it is answered.
 */
import { UnreachableError } from './errors.js';
import { isForNow, pause, pauseBefore } from './retry.js';

const MOST = 1000; // commands that the service takes in a request

export class Outbox {
  #client;
  #report;
  #waiting = []; // {command, resolve, maybe_done}
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
    const answers = await this.#answers(sent.map(({ command }) => command));
    if (this.#closed.signal.aborted) return void sent.forEach(({ resolve }) => resolve());
    const again = answers.find(isForNow);
    if (again) this.#report.gone(again);
    else this.#report.back();
    this.#waiting.unshift(...sent.filter((each, place) => !settled(each, answers[place])));
    return again;
  }

  async #answers(commands) {
    try {
      return await this.#client.batch(commands, { signal: this.#closed.signal });
    } catch (error) {
      return commands.map(() => error);
    }
  }
}

/** Hand out an answer; false when it is to be asked again. */
function settled(each, answer) {
  if (isForNow(answer)) {
    each.maybe_done ||= answer instanceof UnreachableError ? answer.maybe_done : answer.code === 'UNAVAILABLE';
    return false;
  }
  // When the request before did it, its repetition is refused, for the job is in no hands any more.
  const done = each.maybe_done && each.command.command !== 'touch' && [404, 409].includes(answer.status);
  each.resolve(done ? { success: true } : answer);
  return true;
}
