/** The client: a method for each command of docs/protocol.md. */
import { JobQueueError, UnreachableError, refusal } from './errors.js';
import { Transport } from './http.js';
import { Job } from './job.js';
import { encode } from './json.js';
import { checkNoneIsLeft, checkSeconds } from './options.js';
import { Patience, isSafe, mayRepeat } from './retry.js';

/**
 * Each method's last argument holds the command's other fields, by the protocol's names, and `signal`, an AbortSignal:
 * an abort closes the connection and rejects with the signal's reason. All throw RefusedError, UnreachableError, and
 * TypeError, before anything is sent, for what cannot be JSON.
 */
export class Client {
  #transport;
  #retry_for_s;

  constructor({ url, timeout_s = 10, connect_timeout_s = 3, retry_for_s = 10, headers = {}, ...rest } = {}) {
    checkNoneIsLeft(rest);
    checkSeconds('retry_for_s', retry_for_s);
    this.#transport = new Transport({ url, timeout_s, connect_timeout_s, headers });
    this.#retry_for_s = retry_for_s;
  }

  async add(topic, body, options) {
    if (body === undefined) throw new TypeError('undefined cannot be a body');
    return this.#call('add', { ...options, topic, body });
  }

  /** A job, or null. `topic`: one or an array of them, in which they are tried. */
  async pop(topic, options) {
    const answer = await this.#call('pop', { ...options, ...places(topic) });
    return answer.id === null ? null : popped(answer);
  }

  /** Up to `count` jobs. */
  async popMany(topic, count, options) {
    if (count == null) throw new TypeError('popMany wants a count');
    const answer = await this.#call('pop', { ...options, ...places(topic), count });
    return jobsOf(answer);
  }

  async finish(job, options) {
    return this.#call('finish', { ...options, ...delivery(job) });
  }

  async touch(job, options) {
    return this.#call('touch', { ...options, ...delivery(job) });
  }

  async release(job, options) {
    return this.#call('release', { ...options, ...delivery(job) });
  }

  async bury(job, options) {
    return this.#call('bury', { ...options, ...delivery(job) });
  }

  delete(id, options) {
    return this.#call('delete', { ...options, id });
  }

  get(id, options) {
    return this.#call('get', { ...options, id });
  }

  run(id, options) {
    return this.#call('run', { ...options, id });
  }

  update(id, options) {
    return this.#call('update', { ...options, id });
  }

  kick(id, options) {
    return this.#call('kick', { ...options, id });
  }

  kickTopic(topic, count, options) {
    return this.#call('kick', { ...options, topic, count });
  }

  peek(topic, options) {
    return this.#call('peek', { ...options, topic });
  }

  topics(options) {
    return this.#call('topics', { ...options });
  }

  stats(options) {
    return this.#call('stats', { ...options });
  }

  pause(topic, options) {
    return this.#call('pause', { ...options, topic });
  }

  resume(topic, options) {
    return this.#call('resume', { ...options, topic });
  }

  purge(topic, options) {
    return this.#call('purge', { ...options, topic });
  }

  /** The waiting pops of this worker end now, with what they find. */
  leave(worker, options) {
    return this.#call('leave', { ...options, worker });
  }

  /** Several commands in one request: of each its answer, or its JobQueueError, not thrown. */
  async batch(commands, { signal } = {}) {
    if (commands.length === 0) return [];
    const wired = commands.map(wire);
    const patience = new Patience(this.#retry_for_s);
    const results = await this.#send(wired, patience, signal);
    for (;;) {
      const open = [...results.keys()].filter((at) => isOpen(results[at], wired[at]));
      if (open.length === 0 || !(await patience.has(slowest(open.map((at) => results[at])), signal))) return results;
      const again = await this.#sendAgain(open.map((at) => wired[at]), patience, signal);
      open.forEach((at, place) => { results[at] = again[place]; });
    }
  }

  /** Closes the connections. Calls that are on their way fail. */
  close() {
    this.#transport.close();
  }

  #call(command, { signal, ...fields }) {
    return this.#send(wire({ command, ...fields }), new Patience(this.#retry_for_s), signal);
  }

  /** The answer to a command or the answers to an array of them, refusals among them; repeated while that may be. */
  async #send(asked, patience, signal) {
    const safe = Array.isArray(asked) ? asked.every(isSafe) : isSafe(asked);
    for (;;) {
      try {
        return await this.#ask(asked, signal);
      } catch (error) {
        if (!(error instanceof JobQueueError && mayRepeat(error, safe))) throw error;
        await patience.wait(error, signal);
      }
    }
  }

  /** The rest of a batch. What fails now is told of its members, so that the others' answers are not lost. */
  async #sendAgain(asked, patience, signal) {
    try {
      return await this.#send(asked, patience, signal);
    } catch (error) {
      if (!(error instanceof JobQueueError)) throw error;
      return asked.map(() => error);
    }
  }

  async #ask(asked, signal) {
    const text = encode(asked);
    const wait_s = (Array.isArray(asked) ? asked.at(-1) : asked).wait;
    const longer_s = wait_s > 0 ? wait_s : 0; // one that cannot be is refused by the service, in words
    return read(await this.#transport.post(text, longer_s, signal), asked.length);
  }
}

/** A command as it travels: without what is undefined, and with a time that JSON can say. */
function wire(command) {
  const sent = {};
  for (const [name, value] of Object.entries(command)) {
    if (value !== undefined) sent[name] = name === 'at' && value instanceof Date ? value.getTime() / 1000 : value;
  }
  return sent;
}

function places(topic) {
  return Array.isArray(topic) ? { topics: topic } : { topic };
}

/** Which job: a popped one shows its lease. */
function delivery(job) {
  return typeof job === 'object' ? { id: job.id, lease: job.lease } : { id: job };
}

/** Whether a batch's member is to be repeated. */
function isOpen(result, command) {
  return result instanceof JobQueueError && mayRepeat(result, isSafe(command));
}

/** The error that wants the longest pause. */
function slowest(errors) {
  return errors.reduce((one, other) => ((other.retry_after ?? 0) > (one.retry_after ?? 0) ? other : one));
}

/** What the service answered. `count`: of a batch: how many answers there must be. */
function read({ status, retry_after, text }, count) {
  const answer = parse(text);
  if (answer?.success === false) throw refusal(answer, status, retry_after);
  if (count === undefined && answer?.success === true) return answer;
  if (Array.isArray(answer) && answer.length === count && answer.every((each) => typeof each?.success === 'boolean')) {
    return answer.map((each) => (each.success ? each : refusal(each)));
  }
  throw stranger(status, retry_after);
}

/** The jobs of the answer to a pop with `count`. */
export function jobsOf(answer) {
  if (!Array.isArray(answer.jobs)) throw stranger(200);
  return answer.jobs.map(popped);
}

/** The job of a pop's answer. What has no lease or no TTR nobody could end. */
function popped(answer) {
  const { id, topic, value, lease, ttr } = answer ?? {};
  const isJob = typeof id === 'string' && typeof topic === 'string' && value !== undefined
    && Number.isInteger(lease) && Number.isFinite(ttr);
  if (!isJob) throw stranger(200);
  return new Job(answer);
}

/** What answered is no job queue. */
function stranger(status, retry_after = null) {
  const maybe_done = status < 300 || status >= 500; // else a proxy refused it
  return new UnreachableError(`no answer of a job queue, but status ${status}`, { maybe_done, status, retry_after });
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
