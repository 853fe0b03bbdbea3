/**
 * A payment provider is asked again and again whether a payment has arrived: soon at first, then ever more rarely.
 *
 * The job's `backoff` is the ladder of pauses; each `Retry` goes one step down. `tries` says how often it is asked.
 *
 *     node poll_payment.mjs
 */
import { randomUUID } from 'node:crypto';

import { Bury, Client, Retry, Worker } from '../src/index.js'; // in your project: 'jobqueue-client'

const url = process.env.JOBQUEUE_URL ?? 'http://localhost:8000';

// In real life [15, 15, 30, 180, 600, 1200, 1800, 3600] seconds, and a try more than there are steps.
const backoff = [0.5, 0.5, 1, 1];
const tries = 5;

// In real life the id is just `payment-poll:7`. This example may be run again, so it adds a word of this run.
const run = randomUUID().slice(0, 8);
const idOf = (payment) => `payment-poll:${run}:${payment}`;

// -- the provider, pretended: payment 7 is paid at the third ask, payment 8 never

const asks = new Map([[7, 0], [8, 0]]);

async function providerSaysPaid(payment) {
  asks.set(payment, asks.get(payment) + 1);
  return payment === 7 && asks.get(payment) >= 3;
}

// -- the worker

const worker = new Worker({ url });
const open = new Set(asks.keys()); // for the example to know its end

function ended(payment, how) {
  console.log(`payment ${payment} ${how} after ${asks.get(payment)} asks`);
  open.delete(payment);
  if (open.size === 0) worker.stop();
}

worker.job('payment-poll', async (job) => {
  const { payment } = job.body;
  if (await providerSaysPaid(payment)) return ended(payment, 'paid'); // the job is finished
  if (!job.last_try) throw new Retry(); // it comes again after the next step of its back-off
  ended(payment, 'given up');
  throw new Bury(`not paid after ${tries} asks`); // a dead letter, for people to look at
});

// -- all together

const client = new Client({ url });
for (const payment of asks.keys()) {
  await client.add('payment-poll', { payment }, { id: idOf(payment), backoff, tries });
}
const clean = await worker.run(); // until it is stopped: by SIGTERM, or by the handler above
await client.delete(idOf(8)); // the dead letter has been looked at
process.exit(clean ? 0 : 1);
