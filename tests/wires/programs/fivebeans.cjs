// fivebeans against the beanstalkd at a port.
const assert = require('node:assert');
const fivebeans = require('fivebeans');

function connected(port) {
  return new Promise((resolve, reject) => {
    const client = new fivebeans.client('127.0.0.1', port);
    client.on('connect', () => resolve(client)).on('error', reject).connect();
  });
}

// Each command as a promise of the list of what its callback is given.
function asked(client, command, ...args) {
  return new Promise((resolve, reject) => {
    client[command](...args, (error, ...values) => (error ? reject(new Error(error)) : resolve(values)));
  });
}

async function main(port) {
  const maker = await connected(port);
  const worker = await connected(port);
  assert.deepEqual(await asked(maker, 'use', 'five'), ['five']);
  await asked(worker, 'watch', 'five');
  await asked(worker, 'ignore', 'default');
  const waiting = asked(worker, 'reserve');
  const [id] = await asked(maker, 'put', 100, 0, 60, JSON.stringify(['five', { type: 'mail', payload: 'é' }]));
  let [got, payload] = await waiting;
  assert.equal(got, id);
  assert.deepEqual(JSON.parse(payload.toString()), ['five', { type: 'mail', payload: 'é' }]);
  await asked(worker, 'touch', id);
  const [figures] = await asked(worker, 'stats_job', id);
  assert.equal(figures.state, 'reserved');
  assert.equal(figures.pri, 100);
  assert.equal(figures.ttr, 60);
  await asked(worker, 'release', id, 100, 0);
  [got] = await asked(worker, 'reserve_with_timeout', 5);
  assert.equal(got, id);
  await asked(worker, 'bury', id, 100);
  [got] = await asked(maker, 'peek_buried');
  assert.equal(got, id);
  assert.equal((await asked(maker, 'kick', 10))[0], 1);
  [got] = await asked(maker, 'peek_ready');
  assert.equal(got, id);
  await asked(maker, 'pause_tube', 'five', 60);
  assert.equal((await asked(maker, 'stats_tube', 'five'))[0]['pause'], 60);
  await assert.rejects(asked(worker, 'reserve_with_timeout', 0), /TIMED_OUT/);
  await asked(maker, 'pause_tube', 'five', 0);
  [got] = await asked(worker, 'reserve_with_timeout', 5);
  await asked(worker, 'destroy', got);
  await assert.rejects(asked(worker, 'destroy', got), /NOT_FOUND/);
  const [tubes] = await asked(maker, 'list_tubes');
  assert(tubes.includes('five') && tubes.includes('default'));
  assert.deepEqual(await asked(worker, 'list_tubes_watched'), [['five']]);
  const [stats] = await asked(maker, 'stats');
  assert.equal(stats['current-jobs-ready'], 0);
  assert.equal(stats['max-job-size'], 65535);
  maker.end();
  worker.end();
  console.log('done');
}

main(Number(process.argv[2])).then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
