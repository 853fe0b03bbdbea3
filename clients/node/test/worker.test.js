/** Run by `npm run check`: what a worker says of a delivery, against a server of the test's own. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Lost, Worker } from '../src/index.js';

const job = { id: 'x', topic: 't', value: 1, lease: 1, attempt: 1, tries: 16, due: 0, ttr: 60, headers: null };

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

test('an error after the loss of a job reaches on_error, but not that its signal was aborted', async (t) => {
  const thrown = [];
  const events = [];
  const worker = new Worker(await delivering(t, [{ ...job, id: 'fails' }, { ...job, id: 'aborts' }, { ...job, id: 'lost' }]), {
    grace_s: 0,
    logger: { info() {}, error() {} },
    on_error: (error, { id }) => thrown.push([id, error.message]),
    on_event: (name, { id }) => { if (id) events.push(`${name} ${id}`); },
  });
  worker.job('t', async (each, { signal }) => {
    if (each.id === 'lost') worker.stop(); // the last of the three
    if (each.id === 'lost') throw new Lost(each, 'stale');
    await sleep(60_000, undefined, { signal }).catch((error) => { if (each.id === 'aborts') throw error; });
    throw new Error('no disk');
  });
  await worker.run();
  assert.deepEqual(thrown, [['fails', 'no disk']]);
  for (const id of ['fails', 'aborts', 'lost']) assert.equal(events.filter((each) => each === `job.lost ${id}`).length, 1);
});

test('a job is over only when its handler is, even if a middleware forgets to await next()', async (t) => {
  for (const forgets of [(_, next) => { next(); }, async (_, next) => { next(); }]) {
    const events = [];
    const worker = new Worker(await delivering(t, [job]), {
      logger: { info() {}, error() {} },
      on_event: (name, { id, reason }) => { if (id) events.push([name, reason]); },
      max_jobs: 1,
    });
    worker.use(forgets);
    worker.job('t', async () => { await sleep(10); throw new Error('no'); });
    assert.equal(await worker.run(), true);
    assert.deepEqual(events, [['job.started', undefined], ['job.failed', 'Error: no']]);
  }
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
