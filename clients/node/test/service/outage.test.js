/** Run by tests/clients/test_node_testing.py: a worker whose database is away for ten minutes loses no job. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { Worker } from 'jobqueue-client';
import { useQueue } from 'jobqueue-client/testing';

const queue = useQueue();
const JOBS = 20;
const STEP_S = 30;

/** Waits until the worker has nothing in hand, and nothing to begin. */
async function idle() {
  for (;;) {
    const { counts } = await queue.client.stats({ topic: 'order-close' });
    if (counts.ready === 0 && counts.reserved === 0) return counts;
    await sleep(5);
  }
}

test('a worker whose database is away for ten minutes loses no job', async (t) => {
  let database = 'away';
  const deaths = [];
  const finished = new Map();
  const worker = new Worker(queue.url, {
    logger: { info() {}, error() {} },
    on_death: (job) => deaths.push(job.id),
    on_event: (name, { id, attempt }) => { if (name === 'job.finished') finished.set(id, attempt); },
  });
  worker.job('order-close', () => {
    if (database === 'away') throw new Error('connect ECONNREFUSED');
  });
  for (let n = 0; n < JOBS; n++) await queue.client.add('order-close', { order: n }, { id: `order-close:${n}` });
  const running = worker.run();
  t.after(async () => { worker.stop(); await running; });

  for (let passed_s = 0; passed_s < 600; passed_s += STEP_S) {
    assert.equal((await idle()).delayed, JOBS); // each waits for its next try
    await queue.advance(STEP_S);
  }
  assert.equal((await idle()).delayed, JOBS);
  database = 'back';
  for (let passed_s = 0; passed_s < 1200; passed_s += STEP_S) {
    await queue.advance(STEP_S);
    await idle();
  }
  assert.deepEqual([finished.size, deaths], [JOBS, []]);
  assert.ok([...finished.values()].every((attempt) => attempt < 10)); // of 16: it was not asked all the time
  await queue.assertNoneWaiting();
});
