/** Outcomes: what a handler throws to decide what happens to its job, and the reason that the service keeps. */
import { inspect } from 'node:util';

import { checkSeconds } from '../options.js';

export { Lost } from '../job.js';

const TEN_YEARS_S = 315_360_000;

/**
 * Release the job, due in `after` seconds (0 to 315,360,000), by default after the next step of its back-off. With
 * `attempt` false, this delivery does not count as a try; otherwise, the job becomes a dead letter after its last try.
 */
export class Retry extends Error {
  constructor({ after, attempt, reason } = {}) {
    super(reason ?? 'again');
    this.name = 'Retry';
    if (after != null) checkSeconds('after', after, { most: TEN_YEARS_S });
    if (attempt != null && typeof attempt !== 'boolean') throw new TypeError('attempt must be true or false');
    this.after = after;
    this.attempt = attempt;
    this.reason = reason == null ? undefined : shortened(String(reason));
  }
}

/** Make the job a dead letter: no retry can help. */
export class Bury extends Error {
  constructor(reason) {
    super(reason);
    this.name = 'Bury';
    this.reason = reason == null ? undefined : shortened(String(reason));
  }
}

/** How a job ends after its handler threw: the event to report, and the command to send with its fields. */
export function outcomeOf(error, job) {
  if (error instanceof Bury) return { event: 'buried', command: 'bury', fields: { reason: error.reason } };
  if (error instanceof Retry) {
    const { after, attempt, reason } = error;
    const fields = { delay: after, attempt, reason: reason ?? lastTry(error, job) };
    return { event: 'retried', command: 'release', fields };
  }
  return { event: 'failed', command: 'release', fields: { reason: asReason(error) } };
}

/** Why a job is a dead letter, given how its delivery ended. */
export function reasonOfDeath(event, { reason }) {
  return reason ?? (event === 'buried' ? null : 'the ttl ran out');
}

/** The reason for the death of a job whose handler asks for a retry on the last try. */
function lastTry({ attempt }, job) {
  return job.ttr > 0 && job.last_try && attempt !== false
    ? `the tries ran out: ${job.attempt} of ${job.tries}`
    : undefined;
}

/** An error as a reason: its class and message, or a description of whatever was thrown. */
export function asReason(error) {
  try {
    if (!(error instanceof Error)) return shortened(inspect(error));
    const name = error.name === 'Error' ? error.constructor.name : error.name;
    return shortened(`${name}: ${String(error.message)}`);
  } catch {
    return 'an error that cannot be shown'; // a getter threw, which must not hide that the job failed
  }
}

/** The first 1,000 characters, which the service keeps, as valid text. */
function shortened(reason) {
  return Buffer.from(reason.slice(0, 1000)).toString(); // replaces half a surrogate pair with U+FFFD
}
