/** Run by `npm run check`: the client against servers of the test's own, and errors that cannot be shown. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import net from 'node:net';
import { after, before, test } from 'node:test';
import { setImmediate as loopTurn } from 'node:timers/promises';

import { Client, Retry, UnreachableError } from '../src/index.js';
import { asReason } from '../src/worker/outcome.js';

const server = createServer((request, response) => {
  request.resume().on('end', () => response.end('{"success":true}'));
});
let client;

before(async () => {
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  client = new Client({ url: `http://127.0.0.1:${server.address().port}`, retry_for_s: 0.2 });
});

after(() => {
  client.close();
  server.close();
});

test('connections are kept and used again', async () => {
  const seen = new Set();
  server.on('connection', (socket) => seen.add(socket));
  for (let n = 0; n < 3; n++) await client.get('x');
  assert.ok(seen.size <= 1); // none, when those before left one
});

test('a connection that does not come about is waited for no longer than connect_timeout_s', async (t) => {
  const mute = net.createServer(() => {}); // it never answers to the beginning of TLS
  t.after(() => mute.close());
  await new Promise((resolve) => { mute.listen(0, '127.0.0.1', resolve); });
  const url = `https://127.0.0.1:${mute.address().port}`;
  const impatient = new Client({ url, connect_timeout_s: 0.2, retry_for_s: 0 });
  await assert.rejects(impatient.get('x'), (error) => error instanceof UnreachableError && !error.maybe_done);
});

const SERVER = `
  const server = require('node:http').createServer((request, answer) => answer.end('{"success":true}'));
  server.listen(0, '127.0.0.1', () => console.log(server.address().port));
`;

test('a connection that broke while the caller was busy is not used again', async (t) => {
  for (const signal of ['SIGKILL', 'SIGTERM']) {
    const service = spawn(process.execPath, ['-e', SERVER]);
    const [port] = await once(service.stdout, 'data');
    const caller = new Client({ url: `http://127.0.0.1:${Number(port)}`, retry_for_s: 0 });
    t.after(() => caller.close());
    await caller.get('x');
    service.kill(signal);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500); // the loop turns no more until it is dead
    // Not "the connection broke": `run` was not sent, so it may be repeated.
    await assert.rejects(caller.run('x'), (error) => error instanceof UnreachableError && !error.maybe_done);
  }
});

test('more than ten requests with one signal are no reason to warn of a leak', async (t) => {
  const warnings = [];
  const warned = ({ message }) => warnings.push(message);
  process.on('warning', warned);
  t.after(() => process.off('warning', warned));
  const { signal } = new AbortController(); // a worker's, for its touches; or the caller's
  await Promise.all(Array.from({ length: 12 }, () => client.get('x', { signal })));
  await loopTurn(); // a warning comes in a later turn
  assert.deepEqual(warnings, []);
});

test('an answer that ends with its connection is whole', async (t) => {
  const page = net.createServer((socket) => {
    socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"success":true,"job":null}'));
  });
  t.after(() => page.close());
  await new Promise((resolve) => { page.listen(0, '127.0.0.1', resolve); });
  const caller = new Client({ url: `http://127.0.0.1:${page.address().port}`, retry_for_s: 0 });
  t.after(() => caller.close());
  for (let n = 0; n < 3; n++) await caller.pause('t');
});

test('an error that cannot be shown is a reason all the same', () => {
  const broken = new Error();
  Object.defineProperty(broken, 'message', { get() { throw new Error('gotcha'); } });
  const odd = Object.assign(new Error('x'), { name: Symbol('y') });
  for (const error of [broken, odd]) assert.equal(typeof asReason(error), 'string');
  assert.equal(asReason(new TypeError('no')), 'TypeError: no');
  assert.equal(asReason(undefined), 'undefined');
});

test('a reason has 1,000 characters at most, and no half ones', () => {
  assert.equal(asReason(new Error('x'.repeat(2000))).length, 1000);
  assert.ok(asReason(`x${'😀'.repeat(2000)}`).isWellFormed?.() ?? true);
});

test('a Retry beyond what the service takes is told where it is made', () => {
  for (const wrong of [-1, NaN, Infinity, 315_360_001, '5']) assert.throws(() => new Retry({ after: wrong }), /after/);
  assert.equal(new Retry({ after: 0 }).after, 0);
});
