/** Run by tests/clients/test_node_testing.py: a shop tests that it closes unpaid orders, without waiting half an hour. */
import assert from 'node:assert/strict';
import { beforeEach, describe, test } from 'node:test';

import { Bury, Client, Retry, Worker } from 'jobqueue-client';
import { Queue, useQueue } from 'jobqueue-client/testing';

const queue = useQueue();

/** What a user would test. */
class Shop {
  closed = [];
  worker = new Worker('http://production.invalid'); // the kit asks its own service

  constructor(url) {
    this.client = new Client(url);
    this.worker.job('order-close', (job) => { this.closed.push(job.body.order); });
  }

  place(order) {
    return this.client.add('order-close', { order }, { id: `order-close:${order}`, delay: 1800 });
  }

  pay(order) {
    return this.client.delete(`order-close:${order}`);
  }
}

let shop;
beforeEach((t) => { shop = new Shop(queue.url); });

test('an order that is not paid is closed after half an hour', async () => {
  await shop.place(1001);
  await queue.assertWaiting('order-close', { id: 'order-close:1001', body: { order: 1001 }, delay: 1800 });
  await queue.advance({ minutes: 29 });
  assert.deepEqual(await queue.drain(shop.worker), []);
  await queue.advance({ minutes: 1 });
  const [done] = await queue.drain(shop.worker);
  assert.deepEqual(shop.closed, [1001]);
  assert.deepEqual([done.outcome, done.state, done.job.id], ['finished', 'finished', 'order-close:1001']);
  await queue.assertNoneWaiting();
});

test('of an order that is paid nothing waits', async () => {
  await shop.place(1001);
  await shop.pay(1001);
  await queue.assertNoneWaiting('order-close');
  await queue.advance({ hours: 1 });
  assert.deepEqual(await queue.drain(shop.worker), []);
});

for (const turn of ['one', 'the next']) {
  test(`${turn} test begins with an empty queue at the real time`, async () => {
    assert.ok(Math.abs((await queue.now()).getTime() - Date.now()) < 5000);
    await queue.assertNoneWaiting();
    assert.equal((await queue.client.add('order-close', {}, { id: 'same' })).result, 'created');
    await queue.client.delete('same');
    await queue.advance({ days: 400 });
  });
}

test('time passes in any unit', async () => {
  const begun = await queue.now();
  await queue.advance(15);
  await queue.advance({ seconds: 45, minutes: 1, hours: 1, days: 1 });
  assert.ok(Math.abs((await queue.now()).getTime() - begun.getTime() - 90_120_000) < 10);
  await assert.rejects(queue.advance({ minute: 1 }), /minute/);
});

test('a handler that asks again later is run again then', async () => {
  const asked = [];
  const worker = new Worker('http://production.invalid');
  worker.job('payment-poll', (job) => {
    asked.push(job.attempt);
    if (job.attempt < 3) throw new Retry({ after: 30 * job.attempt });
  });
  await queue.client.add('payment-poll', { payment: 7 }, { id: 'p' });
  assert.deepEqual((await queue.drain(worker)).map((done) => done.outcome), ['retried']);
  await queue.assertWaiting('payment-poll', { id: 'p', delay: 30 });
  await queue.advance(30);
  await queue.drain(worker);
  await queue.advance({ minutes: 1 });
  assert.deepEqual((await queue.drain(worker)).map((done) => done.state), ['finished']);
  assert.deepEqual(asked, [1, 2, 3]);
});

test('an error of a handler fails the test, and the job climbs its back-off', async () => {
  const worker = new Worker('http://production.invalid');
  worker.job('order-close', () => { throw new RangeError('no such order'); });
  await queue.client.add('order-close', {}, { id: 'a', backoff: [15, 60] });
  await assert.rejects(queue.drain(worker), { name: 'RangeError', message: 'no such order' });
  await queue.assertWaiting('order-close', { id: 'a', delay: 15 });
  await queue.advance(15);
  const [done] = await queue.drain(worker, { raise_errors: false });
  assert.deepEqual([done.outcome, done.state, done.error.message], ['failed', 'delayed', 'no such order']);
  await queue.assertWaiting('order-close', { delay: 60 });
});

test('what is buried is a dead letter, by a middleware too', async () => {
  const worker = new Worker('http://production.invalid');
  worker.use(() => { throw new Bury('never paid'); });
  worker.job('payment-poll', () => {});
  await queue.client.add('payment-poll', { payment: 7 }, { id: 'p' });
  const [done] = await queue.drain(worker);
  assert.deepEqual([done.outcome, done.state], ['buried', 'dead']);
  const [dead] = await queue.dead();
  assert.deepEqual([dead.id, dead.body, dead.details.reason], ['p', { payment: 7 }, 'never paid']);
  await queue.assertNoneWaiting();
});

test('the hooks of the worker run too, and a job whose tries ran out died', async () => {
  const seen = [];
  const worker = new Worker('http://production.invalid', {
    on_error: (error) => seen.push(['error', error.message]),
    on_death: (job, reason) => seen.push(['death', job.id, reason]),
  });
  worker.job('mail', () => { throw new Error('no mail server'); });
  await queue.client.add('mail', {}, { id: 'm', tries: 1 });
  const [done] = await queue.drain(worker, { raise_errors: false });
  assert.deepEqual(seen, [['error', 'no mail server'], ['death', 'm', 'Error: no mail server']]);
  assert.deepEqual([done.outcome, done.state], ['died', 'dead']);
});

test('a job whose worker died is run again after its ttr', async () => {
  await queue.client.add('order-close', { order: 1 }, { ttr: 60 });
  assert.ok(await queue.client.pop('order-close')); // by a worker that dies
  assert.deepEqual(await queue.drain(shop.worker), []);
  await queue.advance(60);
  await queue.drain(shop.worker);
  assert.deepEqual(shop.closed, [1]);
});

test('a job whose last try fails has died', async () => {
  const worker = new Worker('http://production.invalid');
  worker.job('order-close', () => { throw new RangeError('no such order'); });
  await queue.client.add('order-close', {}, { id: 'a', tries: 1 });
  const [done] = await queue.drain(worker, { raise_errors: false });
  assert.deepEqual([done.outcome, done.state, done.error.message], ['died', 'dead', 'no such order']);
});

test('a handler whose job was cancelled meanwhile has lost it', async () => {
  const worker = new Worker('http://production.invalid');
  worker.job('order-close', (job) => queue.client.delete(job.id));
  await queue.client.add('order-close', {}, { id: 'a' });
  assert.deepEqual((await queue.drain(worker)).map((done) => done.outcome), ['lost']);
});

test('a job that is ready again at once, for ever, ends the drain', async () => {
  const worker = new Worker('http://production.invalid');
  worker.job('order-close', () => { throw new Retry({ after: 0, attempt: false }); });
  await queue.client.add('order-close', {}, { id: 'a' });
  await assert.rejects(queue.drain(worker), /never end/);
});

test('an assert says what is waiting instead', async () => {
  await shop.place(1001);
  await assert.rejects(
    queue.assertWaiting('order-close', { delay: 60 }),
    { name: 'AssertionError', message: /delay: 60.*\n.*order-close:1001, due in 1800 s: \{ order: 1001 \}/ },
  );
  await assert.rejects(queue.assertNoneWaiting(), { name: 'AssertionError', message: /order-close:1001/ });
});

describe('the queue', () => {
  test('is not there before the tests begin', () => {
    assert.throws(() => new Queue().url, /inside a test/);
  });
});

test('what is no time, or no worker, is refused, with what is wanted', async () => {
  const units = 'advance needs seconds, or an object with numbers of seconds, minutes, hours, days, not ';
  for (const [time, came] of [[{ minute: 3 }, '{ minute: 3 }'], ['3', "'3'"], [{ days: '3' }, "{ days: '3' }"], [undefined, 'undefined']]) {
    await assert.rejects(queue.advance(time), { name: 'TypeError', message: units + came });
  }
  await assert.rejects(queue.drain(() => {}), { name: 'TypeError', message: /^drain needs a Worker, not \[Function/ });
});
