/** The client: one method for each command of docs/protocol.md. */
import { connected } from './addresses.js';
import { JobQueueError } from './errors.js';
import { wire } from './fields.js';
import { checkBody, checkCommands, checkNoneIsLeft, checkSeconds, checkedFields } from './options.js';
import { jobOf, jobsOf } from './reply.js';
import { isSafe, mayRepeat } from './retry.js';
import { tracing } from './tracing.js';
import { Tries } from './tries.js';

/**
 * Each method's last argument holds the command's other fields, by the protocol's names, and `signal`, an AbortSignal:
 * an abort closes the connection and rejects with the signal's reason. Every method throws RefusedError,
 * UnreachableError, and, before anything is sent, TypeError for a value that JSON cannot represent.
 */
export class Client {
  #addresses;
  #retry_for_s;

  /** `new Client('http://localhost:8000', options)`, or `new Client({ url or urls, ...options })`. */
  constructor(first, second) {
    const { addresses, options: { retry_for_s = 1.5, ...rest } } = connected(first, second);
    checkNoneIsLeft(rest);
    checkSeconds('retry_for_s', retry_for_s);
    this.#addresses = addresses;
    this.#retry_for_s = retry_for_s;
  }

  async add(topic, body, options) {
    checkBody(body, options);
    return this.#call('add', options, { topic, body });
  }

  /** Adds a job repeatedly: every `every` seconds, or by `cron` in a time `zone`. */
  async schedule(name, topic, body, options) {
    if (body === undefined) throw new TypeError('the body must not be undefined');
    return this.#call('schedule', options, { name, topic, body });
  }

  /** Removes a schedule; the jobs that it has added stay. */
  unschedule(name, options) {
    return this.#call('unschedule', options, { name });
  }

  /** A page of the schedules, with their next times. */
  schedules(options) {
    return this.#call('schedules', options);
  }

  /** Returns a job, or null. `topic`: one topic, or an array of topics in the order in which they are tried. */
  async pop(topic, options) {
    const received = tracing?.receiving();
    const answer = await this.#call('pop', options, topicsOf(topic));
    if (answer.id === null) return null;
    const job = jobOf(answer);
    received?.(job);
    return job;
  }

  /** Returns up to `count` jobs. */
  async popMany(topic, count, options) {
    if (count == null) throw new TypeError('popMany needs a count');
    const received = tracing?.receiving();
    const jobs = jobsOf(await this.#call('pop', options, { ...topicsOf(topic), count }));
    received?.(jobs);
    return jobs;
  }

  async finish(job, options) {
    return this.#settle('finish', options, job);
  }

  async touch(job, options) {
    return this.#call('touch', options, delivery(job));
  }

  async release(job, options) {
    return this.#settle('release', options, job);
  }

  async bury(job, options) {
    return this.#settle('bury', options, job);
  }

  delete(id, options) {
    return this.#call('delete', options, { id });
  }

  get(id, options) {
    return this.#call('get', options, { id });
  }

  /** Why a job is where it is, and what happened to it. */
  explain(id, options) {
    return this.#call('explain', options, { id });
  }

  run(id, options) {
    return this.#call('run', options, { id });
  }

  update(id, options) {
    return this.#call('update', options, { id });
  }

  kick(id, options) {
    return this.#call('kick', options, { id });
  }

  kickTopic(topic, count, options) {
    return this.#call('kick', options, { topic, count });
  }

  peek(topic, options) {
    return this.#call('peek', options, { topic });
  }

  /** Without a topic, this begins a search in the background: see operation(). */
  find(prefix, topic, options) {
    return this.#call('find', options, { prefix, topic });
  }

  topics(options) {
    return this.#call('topics', options);
  }

  stats(options) {
    return this.#call('stats', options);
  }

  forecast(options) {
    return this.#call('forecast', options);
  }

  figures(options) {
    return this.#call('figures', options);
  }

  workers(options) {
    return this.#call('workers', options);
  }

  instances(options) {
    return this.#call('instances', options);
  }

  health(options) {
    return this.#call('health', options);
  }

  pause(topic, options) {
    return this.#call('pause', options, { topic });
  }

  resume(topic, options) {
    return this.#call('resume', options, { topic });
  }

  purge(topic, options) {
    return this.#call('purge', options, { topic });
  }

  /** Plans, starts, pauses, resumes, cancels, gets or lists operations, as `action` (the command's `do`) says. */
  operation(action, options) {
    return this.#call('operation', options, { do: action });
  }

  /** Ends the waiting pops of this worker now, with the jobs that they have found. */
  leave(worker, options) {
    return this.#call('leave', options, { worker });
  }

  /** What people and operators did, the newest first. */
  actions(options) {
    return this.#call('actions', options);
  }

  /** The settings of the service, and where each came from. */
  settings(options) {
    return this.#call('settings', options);
  }

  /** What the token of this client may do, and until when. */
  whoami(options) {
    return this.#call('whoami', options);
  }

  /** Creates, lists, shows, revokes, rotates or tests tokens, as the action says. */
  token(action, options) {
    return this.#call('token', options, { action });
  }

  /** Sends several commands in one request. Returns each one's answer, or its JobQueueError, which is not thrown. */
  async batch(commands, { signal } = {}) {
    checkCommands(commands);
    if (commands.length === 0) return [];
    const send = (wired) => this.#sendAll(wired, signal);
    const wired = commands.map(wire);
    return tracing === null ? send(wired) : tracing.batch(wired, send);
  }

  /** Closes the connections. Calls in flight fail. */
  close() {
    this.#addresses.close();
  }

  async #call(command, options, fields) {
    const { signal, ...others } = checkedFields(command, options);
    const send = (wired) => this.#send(wired, this.#tries(), signal);
    const wired = wire({ command, ...others, ...fields });
    return tracing !== null && command === 'add' ? tracing.add(wired, send) : send(wired);
  }

  /** Finishes, releases or buries a job. */
  async #settle(command, options, job) {
    const fields = delivery(job);
    const send = () => this.#call(command, options, fields);
    return tracing === null ? send() : tracing.settle({ command, id: fields.id, topic: job?.topic }, send);
  }

  /** Sends a batch; members whose refusal is temporary are sent again. */
  async #sendAll(wired, signal) {
    const tries = this.#tries();
    const results = await this.#send(wired, tries, signal);
    for (;;) {
      const open = [...results.keys()].filter((at) => isOpen(results[at], wired[at]));
      if (open.length === 0 || !(await tries.another(slowest(open.map((at) => results[at])), signal))) return results;
      const again = await this.#sendAgain(open.map((at) => wired[at]), tries, signal);
      open.forEach((at, place) => { results[at] = again[place]; });
    }
  }

  #tries() {
    return new Tries(this.#addresses.route(), this.#retry_for_s);
  }

  /** Returns the answer to a command, or the answers, including refusals, to an array; retries if that is safe. */
  async #send(asked, tries, signal) {
    const safe = Array.isArray(asked) ? asked.every(isSafe) : isSafe(asked);
    for (;;) {
      try {
        return await tries.ask(asked, signal);
      } catch (error) {
        if (!(error instanceof JobQueueError && mayRepeat(error, safe))) throw error;
        if (!(await tries.another(error, signal))) throw error;
      }
    }
  }

  /** Sends members of a batch again. An error becomes the result of each, so that the others' answers are not lost. */
  async #sendAgain(asked, tries, signal) {
    try {
      return await this.#send(asked, tries, signal);
    } catch (error) {
      if (!(error instanceof JobQueueError)) throw error;
      return asked.map(() => error);
    }
  }
}

function topicsOf(topic) {
  return Array.isArray(topic) ? { topics: topic } : { topic };
}

/** The fields that name a job; a popped job includes its lease. */
function delivery(job) {
  return typeof job === 'object' ? { id: job.id, lease: job.lease } : { id: job };
}

/** Whether a member of a batch must be sent again. */
function isOpen(result, command) {
  return result instanceof JobQueueError && mayRepeat(result, isSafe(command));
}

/** The error that asks for the longest pause. */
function slowest(errors) {
  return errors.reduce((one, other) => ((other.retry_after ?? 0) > (one.retry_after ?? 0) ? other : one));
}
