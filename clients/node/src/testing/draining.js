/** Runs the handlers of a worker in a test: in this process, one job after the other, without polling or touches. */
import { WorkerJob } from '../job.js';
import { tracing } from '../tracing.js';
import { lossOf } from '../worker/lease.js';
import { Bury, Lost, Retry, outcomeOf, reasonOfDeath } from '../worker/outcome.js';
import { partsOf } from '../worker/worker.js';

const MOST_TIMES = 100; // deliveries of one job while the clock stands still

/** Runs all ready jobs in the worker's topics; returns each delivery as `{ job, outcome, state, error }`. */
export async function drained(client, worker, raise_errors) {
  const { handlers, report } = partsOf(worker);
  const done = [];
  const deliveries = new Map();
  for (;;) {
    const popped = await client.pop([...handlers.keys()], { worker: 'drain' });
    if (popped === null) return done;
    checkEnds(deliveries, popped.id);
    const delivery = await delivered(client, popped, handlers.get(popped.topic), report);
    done.push(delivery);
    if (raise_errors && 'error' in delivery && !isMeant(delivery.error)) throw delivery.error;
  }
}

/** Runs the handler and ends the job, as the worker does, with its hooks and its traces. */
async function delivered(client, popped, handler, report) {
  const job = new WorkerJob(popped);
  const span = tracing?.process(job) ?? null;
  const thrown = await attempt(span?.around(handler) ?? handler, job);
  try {
    return await ended(client, job, thrown, report, span);
  } finally {
    span?.end();
  }
}

async function ended(client, job, thrown, report, span) {
  if ('error' in thrown && !isMeant(thrown.error)) {
    span?.failed(thrown.error);
    report.onError(thrown.error, job);
  }
  const { event, command, fields } = 'error' in thrown
    ? outcomeOf(thrown.error, job)
    : { event: 'finished', command: 'finish', fields: {} };
  if (job.ttr === 0) return { job, outcome: event, state: 'finished', ...thrown }; // the pop finished it
  const isLost = thrown.error instanceof Lost;
  const answer = isLost ? { success: false } : await sent(client, job, command, fields, span);
  // The test, or the handler's own code, may have ended the job in the meantime.
  if (!answer.success) {
    span?.lost(isLost ? thrown.error.reason : lossOf(answer) ?? 'expired');
    return { job, outcome: 'lost', state: answer.state ?? 'unknown', ...thrown };
  }
  const died = answer.state === 'dead' && event !== 'buried';
  if (answer.state === 'dead') {
    const reason = reasonOfDeath(event, fields);
    span?.dead(reason);
    report.onDeath(job, reason, thrown.error);
  }
  return { job, outcome: died ? 'died' : event, state: answer.state, ...thrown };
}

/** Sends the end of a job; returns the answer or a refusal. */
async function sent(client, { id, lease, topic }, command, fields, span) {
  const send = async () => (await client.batch([{ command, id, lease, ...fields }]))[0];
  return tracing === null ? send() : tracing.settleOf(span, { command, id, topic }, send);
}

/** Returns `{ error }` if the handler threw an error, otherwise `{}`. */
async function attempt(handler, job) {
  try {
    await handler(job, { signal: job.signal });
    return {};
  } catch (error) {
    return { error };
  }
}

function isMeant(error) {
  return error instanceof Retry || error instanceof Bury || error instanceof Lost;
}

function checkEnds(deliveries, id) {
  deliveries.set(id, (deliveries.get(id) ?? 0) + 1);
  if (deliveries.get(id) > MOST_TIMES) {
    throw new Error(`${id} is ready again at once whenever it is delivered: this would never end`);
  }
}
