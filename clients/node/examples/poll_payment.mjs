/**
 * Ask a payment provider at growing intervals whether a payment has arrived.
 *
 * The job's `backoff` is the list of pauses; each `Retry` takes the next one. `tries` limits how often to ask.
 *
 *     node poll_payment.mjs
 */
import { randomUUID } from 'node:crypto';

import { Bury, Client, Retry, Worker } from '../src/index.js'; // in your project: 'jobqueue-client'

const url = process.env.JOBQUEUE_URL ?? 'http://localhost:8000';

// Without it the pauses are the service's: 1 s, 5 s, 15 s, 1 min, … In real life [15, 15, 30, 180, 600, 1200, 1800, 3600]
// seconds, and one try more than there are pauses.
const backoff = [0.5, 0.5, 1, 1];
const tries = 5;

// The topic is the example's own. In real life the id is just `poll-payment:7`. This example can be run again, so it adds a
// word of the run.
const topic = 'example-poll-payment';
const run = randomUUID().slice(0, 8);
const idOf = (payment) => `${topic}:${run}:${payment}`;

// -- a mock provider: payment 7 is paid when asked for the third time, payment 8 never

const asks = new Map([[7, 0], [8, 0]]);

async function providerSaysPaid(payment) {
  asks.set(payment, asks.get(payment) + 1);
  return payment === 7 && asks.get(payment) >= 3;
}

// -- the worker

const worker = new Worker(url);
const open = new Set(asks.keys()); // so that the example can end

function ended(payment, how) {
  console.log(`payment ${payment} ${how} after ${asks.get(payment)} asks`);
  open.delete(payment);
  if (open.size === 0) worker.stop();
}

worker.job(topic, async (job) => {
  const { payment } = job.body;
  if (job.id !== idOf(payment)) return; // of an earlier run that was interrupted
  if (await providerSaysPaid(payment)) return ended(payment, 'paid'); // the job is finished
  if (!job.last_try) throw new Retry({ reason: 'not paid yet' }); // delivered again after the next pause
  ended(payment, 'given up');
  throw new Bury(`not paid after ${tries} asks`); // a dead letter, for people to inspect
});

// -- all together

const client = new Client(url);
for (const payment of asks.keys()) {
  await client.add(topic, { payment }, { id: idOf(payment), backoff, tries });
}
const clean = await worker.run(); // until it is stopped: by SIGTERM, or by the handler above
await client.delete(idOf(8)); // the dead letter has been inspected
process.exit(clean ? 0 : 1);
