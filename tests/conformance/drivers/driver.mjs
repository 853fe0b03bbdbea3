/** The driver of the Node client: see ../README.md. */
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

import { Bury, Client, Job, JobQueueError, RefusedError, Retry, Worker } from '../../../clients/node/src/index.js';

const [mode, url, options] = process.argv.slice(2);

/** Writes to a pipe are synchronous on POSIX, so nothing is lost at exit. */
function tell(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** The options, with the address: the URL, unless they have `urls`. */
const withAddress = (given) => ('urls' in given ? given : { url, ...given });

// -- the client

/** The jobs that were popped, to be passed to the client's methods as they are. */
const popped = new Map();

const key = ({ id, lease }) => `${id} ${lease}`;

const TIMES = new Set(['at', 'from', 'start', 'since', 'until', 'created_from']);

/** The methods whose arguments are not just a job, an id or a topic, and the other fields. */
const CALLS = {
  add: (client, { topic, body, ...rest }) => client.add(topic, body, rest),
  pop_many: (client, { topic, count, ...rest }) => client.popMany(topic, count, rest),
  schedule: (client, { name, topic, body, ...rest }) => client.schedule(name, topic, body, rest),
  unschedule: (client, { name }) => client.unschedule(name),
  schedules: (client, args) => client.schedules(args),
  kick_topic: (client, { topic, count }) => client.kickTopic(topic, count),
  batch: (client, { commands }) => client.batch(commands),
  topics: (client, args) => client.topics(args),
  workers: (client, args) => client.workers(args),
  find: (client, { prefix, topic, ...rest }) => client.find(prefix, topic, rest),
  stats: (client, args) => client.stats(args),
  instances: (client) => client.instances(),
  health: (client) => client.health(),
  settings: (client) => client.settings(),
  forecast: (client, args) => client.forecast(args),
  figures: (client, args) => client.figures(args),
  operation: (client, { do: action, ...rest }) => client.operation(action, rest),
  leave: (client, { worker }) => client.leave(worker),
  token: (client, { action, ...rest }) => client.token(action, rest),
  actions: (client, args) => client.actions(args),
  whoami: (client) => client.whoami(),
};

function resultOf(client, call, args) {
  if (call in CALLS) return CALLS[call](client, args);
  const { job, id, topic, ...rest } = args;
  return client[call](job ? popped.get(key(job)) : id ?? topic, rest);
}

function described(error) {
  if (!(error instanceof JobQueueError)) return { class: 'Local', message: String(error) };
  const { message, code, status, state, field, retry_after, maybe_done } = error;
  const name = error.name.replace(/Error$/, '');
  if (!(error instanceof RefusedError)) return { class: name, message, maybe_done };
  const { right, topic } = error;
  return { class: name, code, message, status, state, field, retry_after, right, topic };
}

function remembered(answer) {
  for (const job of [answer].flat()) if (job instanceof Job) popped.set(key(job), job);
  return answer;
}

async function answered(client, { call, args, positional }) {
  for (const fields of [args, args.filter ?? {}]) {
    for (const [name, value] of Object.entries(fields)) {
      if (TIMES.has(name) && value?.time) fields[name] = new Date(value.time);
    }
  }
  try {
    const answer = await (positional ? client[call](...positional) : resultOf(client, call, args));
    if (call !== 'batch') return { ok: remembered(answer) };
    return { ok: answer.map((each) => (each instanceof Error ? { error: described(each) } : { ok: each })) };
  } catch (error) {
    return { error: described(error) };
  }
}

/** A client or a worker with exactly these options, while these variables are set. */
function made({ of, options: given, ...environment }) {
  Object.assign(process.env, environment);
  try {
    return new (of === 'worker' ? Worker : Client)(given);
  } finally {
    for (const name of Object.keys(environment)) delete process.env[name];
  }
}

async function runClient() {
  let client = new Client(withAddress(JSON.parse(options)));
  for await (const line of createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    if (asked.call !== 'new') {
      tell(await answered(client, asked));
      continue;
    }
    try {
      const one = made(asked.args);
      if (one instanceof Client) {
        client.close();
        client = one;
      }
      tell({ ok: null });
    } catch (error) {
      tell({ error: described(error) });
    }
  }
  client.close();
}

// -- the worker

const DEEDS = {
  return: () => {},
  sleep: (job) => sleep(job.body.seconds * 1000),
  fail: (job) => { throw new Error(job.body.reason); },
  retry: (job) => { throw new Retry(job.body); },
  bury: (job) => { throw new Bury(job.body.reason); },
  watch: async (job) => {
    while (job.lost === null) await sleep(20);
    tell({ handler: 'lost', id: job.id, reason: job.lost });
    job.check();
  },
};

async function handle(job) {
  tell({ handler: 'started', id: job.id, attempt: job.attempt, lease: job.lease, body: job.body });
  await DEEDS[job.body.do](job);
  tell({ handler: 'returned', id: job.id });
  return 'done';
}

/** Middleware: the outer one writes what it is around; the inner one may bury the job, and buries one that failed. */
async function outer({ id }, next) {
  tell({ around: 'outer', id });
  tell({ around: `outer after ${await next()}`, id });
}

async function inner({ id, body }, next) {
  tell({ around: 'inner', id });
  if (body.inner === 'buries') throw new Bury('not this one');
  return next().catch((error) => { throw error.constructor === Error ? new Bury(`inner: ${error.message}`) : error; });
}

async function runWorker() {
  const { topics, middleware, ...rest } = JSON.parse(options);
  const worker = new Worker({
    ...withAddress(rest),
    on_event: (event, { error, ...fields }) => tell({ event, ...fields, ...(error && { error: error.message }) }),
    on_error: ({ message }, { id }) => tell({ hook: 'error', id, message }),
    on_death: ({ id }, reason, error) => tell({ hook: 'death', id, reason, message: error?.message }),
  });
  if (middleware) [outer, inner].forEach((each) => worker.use(each));
  for (const topic of topics) worker.job(topic, handle);
  const clean = await worker.run();
  tell({ clean });
  process.exit(clean ? 0 : 1);
}

await (mode === 'worker' ? runWorker : runClient)();
