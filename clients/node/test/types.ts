/** Compiled by `npm run check`, never run: what TypeScript users may write, and what the types must reject. */
import {
  Bury, Client, ForbiddenError, Job, JobQueueError, NotFoundError, Outbox, RefusedError, Retry, UnreachableError, Worker,
} from 'jobqueue-client';
import { useQueue } from 'jobqueue-client/testing';

interface Order {
  order: number;
  coupon?: string;
}

const client = new Client('http://localhost:8000', { timeout_s: 5, headers: { Authorization: 'Bearer x' } });

export const others = [
  new Client({ url: new URL('http://localhost:8000') }),
  new Client({ urls: ['http://one:8000', 'http://two:8000'], retry_for_s: 3 }),
  new Client('https://localhost:8000', { token_file: '/run/token', ca_file: 'ca.pem', cert_file: 'c.pem', key_file: 'k.pem' }),
  new Worker('http://localhost:8000', { token: process.env.TOKEN }),
  new Worker({ urls: ['http://one:8000', 'http://two:8000'], logger: console, max_jobs: 1000, max_time_s: 3600, memory_mb: 256 }),
];

export async function commands(): Promise<void> {
  const order: Order = { order: 1001 };
  const added = await client.add('order-close', order, { id: 'order-close:1001', at: new Date(), if_exists: 'keep', key: '7' });
  await client.add('remind', undefined, { id: 'remind:7', delay: 600, spread: 60, if_exists: 'later' });
  await client.batch([{ command: 'add', topic: 'remind', id: 'remind:7', if_exists: 'sooner' }]);
  const due: number = added.due;
  const job = await client.pop<Order>(['order-close', 'other'], { wait: 20, signal: AbortSignal.timeout(1000) });
  if (job === null) return;
  const number: number = job.body.order;
  await client.touch(job, { ttr: 2 * due });
  await client.finish(job);
  await client.finish('order-close:1001', { lease: job.lease });
  for (const each of await client.popMany<Order>('order-close', number)) await client.release(each, { attempt: false });
  const found = await client.get<Order>(job.id);
  const coupon: string | undefined = found.value?.coupon;
  await client.update(job.id, { body: null, priority: 9 });
  for (let cursor: string | null = null; ;) {
    const page: Awaited<ReturnType<typeof client.peek>> = await client.peek('order-close', { state: 'dead', cursor });
    if ((cursor = page.cursor) === null) break;
  }
  const { facts, timeline } = await client.explain(job.id, { life: 'all' });
  facts.state satisfies string;
  timeline?.some((line) => (line.waited ?? 0) > 1) satisfies boolean | undefined;
  await client.schedule('nightly', 'report', null, { cron: '30 2 * * *', zone: 'Europe/Berlin', overlap: 'skip' });
  const { next } = await client.schedule('poll', 'report', order, { every: 60, start: new Date() });
  next satisfies number | null;
  for (const row of (await client.schedules<Order>({ pattern: 'nightly*' })).schedules) row.value?.order satisfies number | undefined;
  (await client.unschedule('nightly')).live satisfies number;
  const { workers } = await client.workers({ topic: 'order-close' });
  workers.some((worker) => worker.state === 'parked') satisfies boolean;
  const { actions } = await client.actions({ by: 'shop', count: 10 });
  for (const { action, outcome } of actions) console.log(action satisfies string, outcome);
  const { token } = await client.token('create', { name: 'shop', rights: ['produce'], expires: 'never' });
  token satisfies string;
  for (const { used } of (await client.token('list')).tokens) used satisfies number | null;
  const wanted = { topic: 'order-*', reason: 'timeout', died_from: new Date() };
  const { plan, count } = await client.operation('plan', { kind: 'kick', filter: wanted });
  (await client.operation('start', { plan, expect: count, rate: 500 })).samples satisfies string[];
  for (const { left } of (await client.operation('list')).operations) left satisfies number | null;
  (await client.find('order-close:', 'order-close', { count: 10 })).jobs satisfies object[];
  await client.operation('get', { operation: (await client.find('order-close:')).operation });
  if (!(await client.whoami()).open) await client.token('revoke', { id: 'aaaaaaaa' });
  const [sum, popped] = await client.batch([
    { command: 'stats', topic: coupon ?? 'order-close' },
    { command: 'pop', topics: ['order-close'], count: 2, wait: 1 },
  ]);
  if (!(sum instanceof JobQueueError)) sum.counts.ready satisfies number;
  if (!(popped instanceof JobQueueError)) popped.jobs satisfies { id: string }[] | undefined;
}

/** Connections by their shape; tests/clients/test_node_outbox.py has those of knex and pg. */
export async function outbox(
  trx: { (table: string): object; raw(sql: string, bindings: readonly unknown[]): Promise<number[]> },
  pg: { query(text: string, values?: unknown[]): Promise<{ rows: object[] }>; getTypeParser(oid: number): unknown },
): Promise<void> {
  const own = new Outbox({ table: 'shop.jobqueue_outbox' });
  (await own.add(trx, 'order-close', { order: 1001 }, { delay: 1800, tags: ['shop'] })) satisfies string;
  await new Outbox().add(pg, 'remind', undefined, { id: 'remind:7', delay: 600, if_exists: 'later' });
  await own.update(pg, 'order-close:1001', { body: null, priority: 9 });
  await own.delete(trx, 'order-close:1001');
  // @ts-expect-error: the connection comes first
  await own.add('order-close', { order: 1001 });
  // @ts-expect-error: only later and sooner need no body
  await own.add(pg, 'remind', undefined, { id: 'remind:7' });
  // @ts-expect-error: the durability is that of the database
  await own.add(pg, 'remind', 1, { durability: 'local' });
  // @ts-expect-error: misspelt
  new Outbox({ tabel: 'jobqueue_outbox' });
}

export async function errors(): Promise<string | null> {
  try {
    await client.delete('nobody');
  } catch (error) {
    if (error instanceof NotFoundError) return error.state;
    if (error instanceof ForbiddenError) return error.right ?? error.topic;
    if (error instanceof RefusedError) return error.code;
    if (error instanceof UnreachableError && error.maybe_done) return error.message;
  }
  return null;
}

export async function work(): Promise<boolean> {
  const worker = new Worker({
    url: new URL('http://localhost:8000'),
    on_event: (name, fields) => {
      if (name === 'job.failed') fields.reason satisfies string;
      if (name === 'job.died') fields.attempt satisfies number;
      if (name === 'worker.stopping' && fields.reason === 'memory') console.log(fields.worker);
      if (name === 'worker.stopped') fields.died satisfies number;
    },
    on_error: (error, job) => console.log(error instanceof Error, job.topic),
    on_death: async (job, reason, error) => console.log(job.id satisfies string, reason satisfies string | null, error),
  });
  worker.use(async (job, next) => {
    console.time(job.id);
    await next();
  });
  worker.job<Order>('order-close', async (job, { signal }) => {
    if (job.last_try) throw new Bury('it is enough');
    if (job.body.order < 0) throw new Retry({ after: 30, attempt: false });
    await fetch('http://localhost', { signal });
    job.check();
    job satisfies Job<Order>;
  });
  worker.job('other', (job) => {
    // @ts-expect-error: an unknown body must be narrowed first
    job.body.order;
  });
  worker.stop();
  return worker.run();
}

export async function testing(worker: Worker): Promise<void> {
  const queue = useQueue();
  await new Client(queue.url).add('order-close', { order: 1 }, { delay: 1800 });
  const waiting = await queue.assertWaiting<Order>('order-close', { delay: 1800, body: { order: 1 } });
  waiting.body.order satisfies number;
  await queue.advance({ minutes: 30 });
  for (const done of await queue.drain(worker)) if (done.outcome === 'failed') console.log(done.job.id, done.error);
  await queue.assertNoneWaiting();
  // @ts-expect-error: the unit is `minutes`
  await queue.advance({ minute: 30 });
}

export function mistakes(): void {
  // @ts-expect-error: a delay goes into an object
  void client.add('t', 1, 1800);
  // @ts-expect-error: several addresses are `urls`
  void new Client(['http://one:8000', 'http://two:8000']);
  // @ts-expect-error: not both
  void new Client({ url: 'http://one:8000', urls: ['http://two:8000'] });
  // @ts-expect-error: a logger has `error`, too
  void new Worker('http://one:8000', { logger: { info: console.info } });
  // @ts-expect-error: misspelt
  void client.add('t', 1, { dealy: 30 });
  // @ts-expect-error: undefined is not JSON
  void client.add('t', undefined);
  // @ts-expect-error: only later and sooner need no body
  void client.add('t', undefined, { if_exists: 'replace' });
  // @ts-expect-error: the count is missing
  void client.popMany('t');
  // @ts-expect-error: unknown command
  void client.batch([{ command: 'ad', topic: 't', body: 1 }]);
  // @ts-expect-error: nothing shows a token but its making
  void client.token('show', { id: 'aaaaaaaa' }).then(({ token }) => token);
  // @ts-expect-error: the url is required
  void new Worker({ concurrency: 3 });
}
