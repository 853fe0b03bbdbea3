/** Run by `npm run check`: the error for an invalid option names it, before anything else happens. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Client, Worker } from '../src/index.js';

const url = 'http://localhost:1';

const OF_THE_CLIENT = {
  url: [undefined, '', 'localhost:8000', 'ftp://localhost', 'somewhere', ['http://a', 'http://b'], 'http://a,http://b'],
  urls: [['http://a']], // beside `url`
  timeout_s: [0, -1, NaN, '10', null],
  connect_timeout_s: [0, -1, NaN],
  headers: [null, 'x', { 'a b': 'c' }, { a: 'b\n' }, { a: undefined }],
};

const OF_THE_WORKER = {
  ...OF_THE_CLIENT,
  concurrency: [0, 1.5, -1, NaN, '3', Infinity],
  name: ['', 'x'.repeat(129), null],
  poll_s: [0, -1, 61, NaN],
  grace_s: [-1, NaN],
  heartbeat_s: [-1, NaN],
  keep_alive_s: [-1, NaN],
  on_event: ['x'],
  on_error: [1],
  on_death: [{}],
  logger: [null, {}, { info: console.info }, 'x'],
  max_jobs: [0, -1, 1.5, NaN, '3', Infinity],
  max_time_s: [0, -1, NaN, '3'],
  memory_mb: [0, -1, NaN, '3'],
  retry_for_s: [3], // a worker repeats for as long as it takes
};

function refuses(Type, options) {
  for (const [name, values] of Object.entries(options)) {
    test(`${Type.name}: ${name}`, () => {
      for (const value of values) assert.throws(() => new Type({ url, [name]: value }), { message: new RegExp(name) });
    });
  }
}

refuses(Client, { ...OF_THE_CLIENT, retry_for_s: [-1, NaN], timeout: [3] });
refuses(Worker, OF_THE_WORKER);

test('a client and a worker take a URL and options, or options with url or urls', () => {
  for (const Type of [Client, Worker]) {
    new Type(url);
    new Type(new URL(url), { timeout_s: 3 });
    new Type({ urls: [url, new URL('http://localhost:2/queue')], timeout_s: 3 });
    for (const wrong of [[], [undefined], [[url]], [{}], [{ urls: [] }], [{ urls: url }], [{ urls: [url, 'x'] }], [{ url }, {}]]) {
      assert.throws(() => new Type(...wrong), { name: 'TypeError', message: /url/ });
    }
    for (const twice of [{ url }, { urls: [url] }]) assert.throws(() => new Type(url, twice), /not both/);
  }
  assert.throws(() => new Client({ urls: ['http://a,http://b'] }), /urls/);
  assert.throws(() => new Client({ ulrs: [url] }), /url or urls is required; the options given are ulrs/);
  assert.throws(() => new Client([url]), /use the option urls/);
  assert.throws(() => new Client(url, { dealy: 3 }), /unknown option dealy/);
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
});

test('a batch of no commands is refused, with one that would do', async () => {
  const client = new Client(url);
  const wanted = "batch needs an array of commands, such as [{ command: 'stats' }]";
  const refused = [[{ command: 'stats' }, ', not an object'], [undefined, ', not undefined'], ['stats', ', not a string']];
  for (const [commands, came] of [...refused, [[null], '; one is null'], [[undefined], '; one is undefined'], [[[]], '; one is an array']]) {
    await assert.rejects(client.batch(commands), { name: 'TypeError', message: wanted + came });
  }
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
