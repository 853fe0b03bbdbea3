/**
 * Close orders that are not paid in time.
 *
 * When an order is placed, a job is added that is due half an hour later. When it is paid, the job is deleted. A job
 * that becomes due belongs to an unpaid order, and a worker closes it.
 *
 *     node close_unpaid_orders.mjs [SECONDS]     the time to pay; 2 by default
 */
import { randomUUID } from 'node:crypto';

import { Client, NotFoundError, Worker, WrongStateError } from '../src/index.js'; // in your project: 'jobqueue-client'

const url = process.env.JOBQUEUE_URL ?? 'http://localhost:8000';
const time_to_pay = Number(process.argv[2] ?? 2); // 1800 in real life

// The topic is the example's own. In real life an order's number is unique, and the id is just `close-order:1001`. This
// example can be run again, so its ids contain a word of the run.
const topic = 'example-close-order';
const run = randomUUID().slice(0, 8);
const idOf = (order) => `${topic}:${run}:${order}`;

// -- the shop

const client = new Client(url);

async function place(order) {
  // The id makes it safe to repeat the add, by this client after a broken connection or by a customer who clicks twice:
  // there is only one job.
  await client.add(topic, { order }, { id: idOf(order), delay: time_to_pay });
}

async function pay(order) {
  try {
    await client.delete(idOf(order));
    console.log(`order ${order} paid: its time-out is cancelled`);
  } catch (error) {
    // The job is done already, and perhaps forgotten: the order is closed.
    if (!(error instanceof WrongStateError || error instanceof NotFoundError)) throw error;
    console.log(`order ${order} paid too late: ${error.message}`);
  }
}

// -- the worker, in real life a process of its own

const worker = new Worker(url);
const unpaid = new Set([1001, 1003]); // so that the example can end

// A handler that throws is tried again: after 1 s at first, then after longer and longer pauses.
worker.job(topic, async (job) => {
  const { order } = job.body;
  if (job.id !== idOf(order)) return; // of an earlier run that was interrupted
  // Here a database would close the order if it is not paid: a job can be delivered twice.
  console.log(`order ${order} closed: not paid in time`);
  unpaid.delete(order);
  if (unpaid.size === 0) worker.stop();
});

for (const order of [1001, 1002, 1003]) await place(order);
await pay(1002);
const clean = await worker.run(); // until it is stopped: by SIGTERM, or by the handler above
process.exit(clean ? 0 : 1);
