// BullMQ as producer and as worker: it does what lines of JSON on stdin ask (as asked.py, which is for Python).
//
// `node bullmq.mjs SOCKET`, with BENCH_NODE the folder whose node_modules has BullMQ.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { Queue, Worker } = createRequire(`${process.env.BENCH_NODE}/`)("bullmq");

const NAME = "bench";
const BODY = "x".repeat(98); // as JSON 100 bytes
const BULKS = 2; // calls of addBulk at a time: the next is made ready while Redis is at work

// A worker's connection must wait for Redis for ever, says BullMQ; the queue's may share the setting.
const connection = { path: process.argv[2], maxRetriesPerRequest: null };
const queue = new Queue(NAME, { connection });

// BullMQ refuses ids with a colon. 20 characters.
const id = (number) => `job-${String(number).padStart(16, "0")}`;

/** A job due at a time in ms since the epoch; null is at once. */
function job(number, due) {
  const timestamp = Date.now();
  const opts = { jobId: id(number), timestamp };
  return { name: "job", data: BODY, opts: due === null ? opts : { ...opts, delay: Math.max(0, due - timestamp) } };
}

/** Run an async function so many times at once. */
const together = (times, work) => Promise.all(Array.from({ length: times }, work));

/** Add for about so many seconds, `connections` calls at a time, each of `size` jobs. */
async function add({ seconds, connections, size, first, due }) {
  const begun = performance.now();
  const end = begun + seconds * 1000;
  let next = first;
  await together(connections, async () => {
    while (performance.now() < end) {
      const number = next;
      next += size;
      if (size === 1) {
        const { name, data, opts } = job(number, due);
        await queue.add(name, data, opts);
      } else {
        await queue.addBulk(Array.from({ length: size }, (_, each) => job(number + each, due)));
      }
    }
  });
  return { jobs: next - first, seconds: (performance.now() - begun) / 1000 };
}

/** When a job falls due: so long after it was added, or `step` ms after the one before, or at once. */
function dueOf(number, { origin, due, step, delay }) {
  if (delay !== null) return Date.now() + delay;
  return due === null ? null : Math.ceil(due + (number - origin) * step);
}

/** Add the jobs first..first+jobs by addBulk of so many. */
async function fill({ jobs, first, size, ...when }) {
  let next = first;
  await together(BULKS, async () => {
    while (next < first + jobs) {
      const number = next;
      const count = Math.min(size, first + jobs - number);
      next += count;
      const due = (each) => dueOf(number + each, when);
      await queue.addBulk(Array.from({ length: count }, (_, each) => job(number + each, due(each))));
    }
  });
  return {};
}

/** What to add to performance.now() for the time of day in ms, read as Date.now() turns; a reading may be too late. */
function turning() {
  const before = Date.now();
  let turn = Date.now();
  while (turn === before) turn = Date.now();
  return turn - performance.now();
}

/** A clock finer than Date.now(), never behind it. */
function fineClock() {
  const offset = Math.max(turning(), turning(), turning());
  return () => Math.max(Date.now(), performance.now() + offset);
}

let worker;
let done;

/** Be ready to handle so many jobs, so many at a time; a finished one is kept for so long. */
async function prepare({ jobs, concurrency, kept_s: keptS }) {
  const now = fineClock();
  const numbers = [];
  const at = [];
  const handle = async (job) => {
    at.push(now());
    numbers.push(Number(job.id.slice(4)));
  };
  const none = { count: 0 };
  const removing = { removeOnComplete: keptS ? { age: keptS } : none, removeOnFail: none };
  worker = new Worker(NAME, handle, { connection, concurrency, autorun: false, ...removing });
  worker.on("error", (error) => console.error(error));
  await worker.waitUntilReady();
  let completed = 0;
  done = new Promise((resolve) => {
    worker.on("completed", () => {
      completed += 1;
      if (completed === jobs) resolve({ end: now(), numbers, at });
    });
  });
  return {};
}

/** Handle them: when the last one was finished, and each job's number and time, in ms since the epoch. */
function run() {
  worker.run();
  return done;
}

async function close() {
  await worker.close();
  return {};
}

const works = { add, fill, prepare, run, close };
for await (const line of createInterface({ input: process.stdin })) {
  const { work, ...options } = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(await works[work](options))}\n`);
}
process.exit(0);
