/** Run by `npm run check`: the error for an invalid option names it, before anything else happens. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Client, Worker } from '../src/index.js';

const url = 'http://localhost:1';

const OF_THE_CLIENT = {
  url: [undefined, '', 'localhost:8000', 'ftp://localhost', 'somewhere'],
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

test('the longest times are no short ones', () => {
  new Client({ url, timeout_s: Infinity, retry_for_s: 0 });
  new Worker({ url, grace_s: Infinity, heartbeat_s: 3e6, keep_alive_s: Infinity });
});

test('a handler is a function, and the only one of its topic', () => {
  const worker = new Worker({ url });
  assert.throws(() => worker.job('t'), /t/);
  worker.job('t', () => {});
  assert.throws(() => worker.job('t', () => {}), /already/);
});
