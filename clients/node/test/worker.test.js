/** Run by `npm run check`: what a worker says of a delivery, against a server of the test's own. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';

import { Worker } from '../src/index.js';

const now = Date.now() / 1000;
const job = { id: 'x', topic: 't', value: 1, lease: 1, attempt: 1, tries: 16, due: now - 100, ttr: 60, headers: null };
const AGAIN = { ...job, id: 'again', attempt: 2, ready: now - 10 };

/** A server that delivers these jobs to the first pop, and accepts all else. */
async function delivering(t, jobs) {
  const waiting = [...jobs];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const part of request) text += part;
    const asked = JSON.parse(text);
    const answers = [asked].flat().map(({ command }) => (
      { success: true, jobs: command === 'pop' ? waiting.splice(0) : undefined }
    ));
    response.end(JSON.stringify(Array.isArray(asked) ? answers : answers[0]));
  });
  t.after(() => server.close());
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  return `http://127.0.0.1:${server.address().port}`;
}

test('the lateness of a delivery counts from when the job became ready again', async (t) => {
  const late = {};
  const worker = new Worker(await delivering(t, [job, AGAIN]), {
    logger: { info() {}, error() {} },
    on_event: (name, { id, late_s }) => { if (name === 'job.started') late[id] = Math.round(late_s / 10) * 10; },
  });
  worker.job('t', () => { if (Object.keys(late).length === 2) worker.stop(); });
  await worker.run();
  assert.deepEqual(late, { x: 100, again: 10 });
});

test('a logger and hooks that fail do no harm', async (t) => {
  const fail = () => { throw new Error('disk full'); };
  const events = [];
  const worker = new Worker(await delivering(t, [job]), {
    logger: { info: fail, error: fail },
    on_event: (name) => { events.push(name); fail(); },
    on_error: async () => fail(),
  });
  worker.job('t', () => { worker.stop(); fail(); });
  const written = t.mock.method(process.stderr, 'write', () => true);
  assert.equal(await worker.run(), true);
  assert.deepEqual(events, ['worker.started', 'job.started', 'worker.stopping', 'job.failed', 'worker.stopped']);
  assert.ok(written.mock.calls.every((call) => JSON.parse(call.arguments[0]).message === 'logger.failed'));
});
