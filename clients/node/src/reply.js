/** Replies: reads what the service replied to a request as answers, refusals and jobs. */
import { UnreachableError, refusal } from './errors.js';
import { Job } from './job.js';

/**
 * The answer to a command, or the answers, including refusals, to a batch.
 * @param {object|object[]} asked the command, or the batch
 * @throws {RefusedError|UnreachableError} when the whole request was refused, or the reply is not from a job queue
 */
export function readReply({ status, retry_after, text }, asked) {
  const answer = parsed(text);
  if (answer?.success === false) throw refusal(answer, asked, status, retry_after);
  const fits = Array.isArray(asked) ? isBatch(answer, asked.length) : answer?.success === true;
  if (!fits) throw foreign(status, retry_after);
  if (!Array.isArray(asked)) return answer;
  return answer.map((each, place) => (each.success ? each : refusal(each, asked[place])));
}

function isBatch(answer, count) {
  return Array.isArray(answer) && answer.length === count && answer.every((each) => typeof each?.success === 'boolean');
}

/** The jobs in the answer to a pop with `count`. */
export function jobsOf(answer) {
  if (!Array.isArray(answer.jobs)) throw foreign(200);
  return answer.jobs.map(jobOf);
}

/** The job in a pop's answer. Without its lease or its TTR, no client could ever end it. */
export function jobOf(answer) {
  const { id, topic, value, lease, ttr } = answer ?? {};
  const isJob = typeof id === 'string' && typeof topic === 'string' && value !== undefined
    && Number.isInteger(lease) && Number.isFinite(ttr);
  if (!isJob) throw foreign(200);
  return new Job(answer);
}

/** The error for a reply that is not from a job queue: a proxy whose service is down, or a wrong URL. */
function foreign(status, retry_after = null) {
  const maybe_done = status < 300 || status >= 500; // any other status means that a proxy refused the request
  const message = `the reply is not from a job queue: HTTP status ${status}`;
  return new UnreachableError(message, { maybe_done, status, retry_after });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
