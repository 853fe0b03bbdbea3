/**
 * Orders that are not paid in time are closed.
 *
 * When an order is placed, a job is handed in that is due half an hour later. When it is paid, the job is deleted.
 * Whatever is still there when it is due was not paid, and a worker closes it.
 *
 *     node close_unpaid_orders.mjs [SECONDS]     the time to pay; 2 by default
 */
import { randomUUID } from 'node:crypto';

import { Client, Worker } from '../src/index.js'; // in your project: 'jobqueue-client'

const url = process.env.JOBQUEUE_URL ?? 'http://localhost:8000';
const time_to_pay = Number(process.argv[2] ?? 2); // 1800 in real life

// In real life an order's number is unique, and the id is just `order-close:1001`. This example may be run again, so
// its ids have a word of this run in them.
const run = randomUUID().slice(0, 8);
const idOf = (order) => `order-close:${run}:${order}`;

// -- the shop

const client = new Client({ url });

async function place(order) {
  // With an id of one's own the add may be repeated: by this client after a lost connection, or by a customer who
  // clicks twice. The job is there once.
  await client.add('order-close', { order }, { id: idOf(order), delay: time_to_pay });
}

async function pay(order) {
  await client.delete(idOf(order));
  console.log(`order ${order} paid: its time-out is cancelled`);
}

// -- the worker, in real life a process of its own

const worker = new Worker({ url });
const unpaid = new Set([1001, 1003]); // for the example to know its end

worker.job('order-close', async (job) => {
  // Here a database would be asked to close the order, if it is not paid: a job can come twice.
  console.log(`order ${job.body.order} closed: not paid in time`);
  unpaid.delete(job.body.order);
  if (unpaid.size === 0) worker.stop();
});

for (const order of [1001, 1002, 1003]) await place(order);
await pay(1002);
const clean = await worker.run(); // until it is stopped: by SIGTERM, or by the handler above
process.exit(clean ? 0 : 1);
