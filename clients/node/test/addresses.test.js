/** Run by `npm run check`: which of several addresses a request goes to, against servers of the test's own. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import net from 'node:net';
import { test } from 'node:test';

import { Client, UnavailableError, UnreachableError } from '../src/index.js';

const GOOD = { status: 200, answer: { success: true, id: null } };
const LEAVING = { status: 503, answer: { success: false, code: 'SHUTTING_DOWN', error: 'bye', retry_after: 1 } };
const NOT_NOW = { status: 503, answer: { success: false, code: 'UNAVAILABLE', error: 'not now' } };
const PAGE = { status: 502, answer: '<html>' };

/** An instance that answers with `says`, or breaks the connection, and knows what it was asked. */
async function instance(t, says = GOOD) {
  const asked = [];
  const self = { says, asked };
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const part of request) text += part;
    asked.push(JSON.parse(text).command ?? 'batch');
    if (self.says === 'break') return request.socket.destroy();
    response.statusCode = self.says.status;
    return response.end(JSON.stringify(self.says.answer));
  });
  t.after(() => { server.close(); server.closeAllConnections(); });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  self.url = `http://127.0.0.1:${server.address().port}`;
  return self;
}

/** The URL of nothing: connections are refused. */
async function refusing() {
  const server = net.createServer();
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  const { port } = server.address();
  await new Promise((resolve) => { server.close(resolve); });
  return `http://127.0.0.1:${port}`;
}

/** A client of these addresses in this order, and its clock, which only the test moves. */
function clientOf(t, urls, options) {
  let now = performance.now();
  t.mock.method(performance, 'now', () => now);
  const random = Math.random;
  let place = 0;
  Math.random = () => place++; // the order stays as it is
  const client = new Client({ urls, ...options });
  Math.random = random;
  t.after(() => client.close());
  return { client, pass: (seconds) => { now += seconds * 1000; } };
}

test('the order of the addresses is random, so that clients spread over them', async (t) => {
  const [one, other] = [await instance(t), await instance(t)];
  for (let n = 0; n < 40; n++) {
    const client = new Client({ urls: [one.url, other.url] });
    await client.get('x');
    client.close();
  }
  assert.ok(one.asked.length > 0 && other.asked.length > 0);
});

test('all requests go to the first address while it answers', async (t) => {
  const [one, other] = [await instance(t), await instance(t)];
  const { client } = clientOf(t, [one.url, other.url]);
  for (let n = 0; n < 5; n++) await client.get('x');
  assert.deepEqual([one.asked.length, other.asked.length], [5, 0]);
});

for (const command of ['pop', 'get']) {
  test(`${command}: the next address is asked when one refuses the connection, even without retries`, async (t) => {
    const other = await instance(t);
    const { client } = clientOf(t, [await refusing(), await refusing(), other.url], { retry_for_s: 0 });
    await client[command]('x');
    await client[command]('x');
    assert.deepEqual(other.asked, [command, command]);
  });

  test(`${command}: the next address is asked when one shuts down, and its Retry-After is not waited for`, async (t) => {
    const [one, other] = [await instance(t, LEAVING), await instance(t)];
    const { client } = clientOf(t, [one.url, other.url], { retry_for_s: 0 });
    await client[command]('x');
    await client[command]('x');
    assert.deepEqual([one.asked.length, other.asked.length], [1, 2]); // the second time it is left out
  });
}

for (const [how, says] of [['breaks the connection', 'break'], ["answers with a proxy's page", PAGE]]) {
  test(`when one ${how}, the next one is asked at once only for what is safe to repeat`, async (t) => {
    const [one, other] = [await instance(t, says), await instance(t)];
    const { client, pass } = clientOf(t, [one.url, other.url], { retry_for_s: 0 });
    await client.get('x');
    pass(5);
    await assert.rejects(client.pop('t'), (error) => error instanceof UnreachableError && error.maybe_done);
    await client.pop('t');
    assert.deepEqual([one.asked, other.asked], [['get', 'pop'], ['get', 'pop']]);
  });
}

test('an address is left out for 5 s, then twice as long each time, 60 s at most; a success ends that', async (t) => {
  const [one, other] = [await instance(t, PAGE), await instance(t)];
  const { client, pass } = clientOf(t, [one.url, other.url]);
  await client.get('x');
  for (const [failures, seconds] of [5, 10, 20, 40, 60, 60].entries()) {
    pass(seconds - 0.1);
    await client.get('x');
    assert.equal(one.asked.length, failures + 1);
    pass(0.1);
    await client.get('x');
    assert.equal(one.asked.length, failures + 2);
  }
  one.says = GOOD;
  pass(60);
  await client.get('x');
  one.says = PAGE;
  await client.get('x');
  one.asked.length = 0;
  pass(5);
  await client.get('x');
  assert.equal(one.asked.length, 1);
});

test('requests that fail together leave their address out once', async (t) => {
  const [one, other] = [await instance(t, PAGE), await instance(t)];
  const { client, pass } = clientOf(t, [one.url, other.url]);
  await Promise.all(Array.from({ length: 10 }, () => client.get('x')));
  assert.deepEqual([one.asked.length, other.asked.length], [10, 10]);
  pass(5);
  await client.get('x');
  assert.equal(one.asked.length, 11);
});

test('when all are left out, the one that comes back first is asked, and each once before the pauses', async (t) => {
  const [one, other] = [await instance(t, PAGE), await instance(t, PAGE)];
  const { client, pass } = clientOf(t, [one.url, other.url], { retry_for_s: 0 });
  await assert.rejects(client.get('x'), UnreachableError);
  assert.deepEqual([one.asked.length, other.asked.length], [1, 1]);
  pass(1);
  other.says = GOOD;
  await client.get('x'); // the first comes back first, and fails
  one.says = GOOD;
  await client.get('x');
  assert.deepEqual([one.asked.length, other.asked.length], [2, 3]);
});

test('after UNAVAILABLE the retry goes to the next address, after a pause, and the address is not left out', async (t) => {
  const [one, other] = [await instance(t, NOT_NOW), await instance(t)];
  const { client } = clientOf(t, [one.url, other.url]);
  await client.get('x');
  assert.deepEqual([one.asked.length, other.asked.length], [1, 1]);
  const { client: hasty } = clientOf(t, [one.url, other.url], { retry_for_s: 0 });
  await assert.rejects(hasty.get('x'), UnavailableError);
  assert.deepEqual([one.asked.length, other.asked.length], [2, 1]);
});

test('of a batch only what a stopping instance refused goes to the next one', async (t) => {
  const done = { success: true, id: 'a' };
  const [one, other] = [await instance(t, { status: 200, answer: [done, LEAVING.answer] }), await instance(t)];
  other.says = { status: 200, answer: [{ success: true, id: 'b' }] };
  const { client } = clientOf(t, [one.url, other.url], { retry_for_s: 0 });
  const answers = await client.batch([{ command: 'run', id: 'a' }, { command: 'run', id: 'b' }]);
  assert.deepEqual(answers.map((answer) => answer.id), ['a', 'b']);
});
