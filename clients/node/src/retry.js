/** What is repeated, and when: the rules of ../../README.md. */
import { setTimeout as sleep } from 'node:timers/promises';

import { UnreachableError } from './errors.js';
import { timerMs } from './timer.js';

const NOTHING_DONE = new Set(['TOPIC_FULL', 'TOO_FAST', 'NO_ROOM', 'SHUTTING_DOWN']);
const PROXY_ERRORS = new Set([502, 503, 504]);
const SAFE = new Set(['finish', 'delete', 'get', 'stats', 'peek', 'topics', 'pause', 'resume', 'leave']);
const SAFE_WITH_LEASE = new Set(['touch', 'release', 'bury']);

/** Whether a command may be done twice without harm. */
export function isSafe(command) {
  if (command.command === 'add') {
    return command.id != null && (command.if_exists ?? 'keep') === 'keep' && command.retention !== 0;
  }
  return SAFE.has(command.command) || (SAFE_WITH_LEASE.has(command.command) && command.lease != null);
}

/** Whether a command that failed so is repeated. `safe`: it may be done twice without harm. */
export function mayRepeat(error, safe) {
  if (error instanceof UnreachableError) {
    return (error.status === null || PROXY_ERRORS.has(error.status)) && (safe || !error.maybe_done);
  }
  return NOTHING_DONE.has(error.code) || (error.code === 'UNAVAILABLE' && safe);
}

/** Whether the same may succeed later, however long that takes. */
export function isForNow(error) {
  return error instanceof UnreachableError || mayRepeat(error, true);
}

/**
 * The pause before a repetition, in ms: random, so that not all come back at once.
 * @param {number} repetition the first is 1
 */
export function pauseBefore(repetition, error) {
  const random = Math.random() * Math.min(2000, 50 * 2 ** repetition);
  return Math.max(random, (error.retry_after ?? 0) * 1000);
}

/** Sleep; rejected with the signal's reason when that is aborted. */
export async function pause(ms, signal) {
  await sleep(timerMs(ms), undefined, { signal }).catch(() => signal.throwIfAborted());
}

/** The time that one call may take over its repetitions. It runs from the first failure on. */
export class Patience {
  #retry_for_ms;
  #end = null;
  #repetitions = 0;

  constructor(retry_for_s) {
    this.#retry_for_ms = retry_for_s * 1000;
  }

  /** Pause before the next repetition; when that would end too late, throw the error. */
  async wait(error, signal) {
    if (!(await this.has(error, signal))) throw error;
  }

  /** Pause before the next repetition; false, at once, when that would end too late. */
  async has(error, signal) {
    this.#end ??= performance.now() + this.#retry_for_ms;
    this.#repetitions += 1;
    const ms = pauseBefore(this.#repetitions, error);
    if (performance.now() + ms >= this.#end) return false;
    await pause(ms, signal);
    return true;
  }
}
