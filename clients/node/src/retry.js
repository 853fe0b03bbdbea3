/** Retries: which failures are temporary, which commands are safe to repeat, and the pauses; see ../../README.md. */
import { setTimeout as sleep } from 'node:timers/promises';

import { AlreadyExistsError, UnreachableError } from './errors.js';
import { timerMs } from './timer.js';

/** Temporary refusals of a command that was not executed; after UNAVAILABLE, it may have been. */
const NOT_EXECUTED = new Set(['TOPIC_FULL', 'TOO_FAST', 'NO_ROOM', 'SHUTTING_DOWN']);
const PROXY_ERRORS = new Set([502, 503, 504]);
const SAFE = new Set([
  'schedule', 'unschedule', 'schedules', 'forecast', 'find', 'instances', 'health', 'settings', 'figures',
  'finish', 'delete', 'get', 'explain', 'stats', 'peek', 'topics', 'workers', 'pause', 'resume', 'leave', 'whoami', 'actions',
]);
const SAFE_OPERATIONS = new Set(['plan', 'get', 'list']); // a second plan is forgotten when nobody starts it
const SAFE_WITH_LEASE = new Set(['touch', 'release', 'bury']);

/** Whether executing a command twice does no harm. */
export function isSafe(command) {
  if (command.command === 'add') {
    return command.id != null && (command.if_exists ?? 'keep') === 'keep' && command.retention !== 0;
  }
  if (command.command === 'operation') return SAFE_OPERATIONS.has(command.do);
  return SAFE.has(command.command) || (SAFE_WITH_LEASE.has(command.command) && command.lease != null);
}

/** Whether the failure is temporary and a retry does no harm. `safe`: true if the commands may be executed twice. */
export function mayRepeat(error, safe) {
  if (error instanceof UnreachableError) {
    return isAway(error) && (safe || !error.maybe_done);
  }
  return NOT_EXECUTED.has(error.code) || (error.code === 'UNAVAILABLE' && safe);
}

/**
 * Returns success for an add that was repeated because it may have been executed, and that found the job dead: an
 * earlier attempt probably created the job. Any other result of a command is returned as it is.
 */
export function foundDead(command, result) {
  const isDead = command.command === 'add' && result instanceof AlreadyExistsError && result.state === 'dead';
  return isDead ? { success: true, id: command.id, state: 'dead', result: 'existing' } : result;
}

/** Whether the address is at fault, and another one may answer. */
export function isAway(error) {
  if (error instanceof UnreachableError) return error.status === null || PROXY_ERRORS.has(error.status);
  return error?.code === 'SHUTTING_DOWN';
}

/**
 * Whether the same command of a worker may succeed later, however long that takes. A refused token may be corrected;
 * how long a worker waits for that is up to its Contact.
 */
export function isForNow(error) {
  return error instanceof UnreachableError || error?.code === 'UNAUTHORIZED' || mayRepeat(error, true);
}

/**
 * The pause before a retry, in ms: random, on top of any Retry-After, so that many clients do not return at once.
 * @param {number} retry counted from 1
 */
export function pauseBefore(retry, error) {
  const random = Math.random() * Math.min(2000, 50 * 2 ** retry);
  return (error.retry_after ?? 0) * 1000 + random;
}

/** Sleeps; an abort of the signal rejects with its reason. */
export async function pause(ms, signal) {
  await sleep(timerMs(ms), undefined, { signal }).catch(() => signal.throwIfAborted());
}

/** The pauses between the attempts of one call, for `retry_for_s` seconds after its first failure. */
export class Retries {
  #retry_for_ms;
  #end = null;
  #count = 0;

  constructor(retry_for_s) {
    this.#retry_for_ms = retry_for_s * 1000;
  }

  /** Notes a failure; the first one starts the time. */
  begin() {
    this.#end ??= performance.now() + this.#retry_for_ms;
  }

  /** Pauses before the next attempt; returns false at once if the attempt would come too late. */
  async pause(error, signal) {
    this.begin();
    this.#count += 1;
    const ms = pauseBefore(this.#count, error);
    if (performance.now() + ms >= this.#end) return false;
    await pause(ms, signal);
    return true;
  }
}
