/** Run by `npm run check`: the error for an invalid option names it, before anything else happens. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Client, Worker } from '../src/index.js';

const url = 'http://localhost:1';

// Those that JSON cannot express, or that only this client has; tests/conformance/scenario.json has the others.
const OF_THE_CLIENT = {
  timeout_s: [NaN, null], connect_timeout_s: [NaN], headers: [null, 'x', { a: undefined }],
};

const OF_THE_WORKER = {
  ...OF_THE_CLIENT,
  concurrency: [NaN, Infinity], name: [null], poll_s: [NaN], grace_s: [NaN], heartbeat_s: [NaN], keep_alive_s: [NaN],
  on_event: ['x'], on_error: [1], on_death: [{}], logger: [null, {}, { info: console.info }, 'x'],
  max_jobs: [NaN, Infinity], max_time_s: [NaN, '3'], memory_mb: [NaN, '3'],
};

function refuses(Type, options) {
  for (const [name, values] of Object.entries(options)) {
    test(`${Type.name}: ${name}`, () => {
      for (const value of values) assert.throws(() => new Type({ url, [name]: value }), { message: new RegExp(name) });
    });
  }
}

refuses(Client, { ...OF_THE_CLIENT, retry_for_s: [NaN] });
refuses(Worker, OF_THE_WORKER);

test('a client and a worker take a URL and options, or options with url or urls', () => {
  for (const Type of [Client, Worker]) {
    new Type(url);
    new Type(new URL(url), { timeout_s: 3 });
    new Type({ urls: [url, new URL('http://localhost:2/queue')], timeout_s: 3 });
    for (const wrong of [[], [undefined], [[url]], [{ url }, {}]]) {
      assert.throws(() => new Type(...wrong), { name: 'TypeError', message: /url/ });
    }
    for (const twice of [{ url }, { urls: [url] }]) assert.throws(() => new Type(url, twice), /not both/);
  }
  assert.throws(() => new Client({ ulrs: [url] }), /url or urls is required; the options given are ulrs/);
  assert.throws(() => new Client([url]), /use the option urls/);
});

test('fields that are no object are refused, with an object that would do', async () => {
  const client = new Client(url);
  const shows = (example) => ({ name: 'TypeError', message: new RegExp(example) });
  await assert.rejects(client.add('t', 1, 1800), shows('add must be an object such as { delay: 1800 }'));
  await assert.rejects(client.add('t', 1, new Date(0)), shows('{ at: 1970'));
  await assert.rejects(client.add('t', 1, 'ord-7'), shows("{ id: 'ord-7' }"));
  await assert.rejects(client.pop('t', 20), shows('{ wait: 20 }'));
  await assert.rejects(client.release('x', 30), shows('{ delay: 30 }'));
  await assert.rejects(client.pause('t', [60]), shows('pause must be an object'));
  await assert.rejects(client.token('revoke', 'aaaaaaaa'), shows("{ id: 'aaaaaaaa' }"));
});

test('the longest times are no short ones', () => {
  new Client({ url, timeout_s: Infinity, retry_for_s: 0 });
  new Worker({ url, grace_s: Infinity, heartbeat_s: 3e6, keep_alive_s: Infinity });
});

test('a middleware is a function', () => {
  assert.throws(() => new Worker(url).use('x'), /function/);
});

test('a handler is a function, and the only one of its topic', () => {
  const worker = new Worker({ url });
  assert.throws(() => worker.job('t'), /t/);
  worker.job('t', () => {});
  assert.throws(() => worker.job('t', () => {}), /already/);
});
