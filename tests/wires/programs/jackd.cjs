// jackd against the beanstalkd at a port.
const assert = require('node:assert');
const Jackd = require('jackd');

async function main(port) {
  const maker = new Jackd();
  const worker = new Jackd();
  await maker.connect({ host: '127.0.0.1', port });
  await worker.connect({ host: '127.0.0.1', port });
  assert.equal(await maker.use('jackd'), 'jackd');
  assert.equal(await worker.watch('jackd'), 2);
  assert.equal(await worker.ignore('default'), 1);
  const waiting = worker.reserve();
  const text = 'words "in quotes"';
  const id = await maker.put(text, { priority: 10, ttr: 60 });
  let job = await waiting;
  assert.equal(job.id, id);
  assert.equal(job.payload.toString(), text);
  await worker.touch(id);
  assert.match(await worker.statsJob(id), /state: "?reserved"?\n(.*\n)*pri: 10\n/);
  await worker.release(id, { priority: 5, delay: 0 });
  job = await worker.reserveWithTimeout(5);
  assert.equal(job.id, id);
  await worker.bury(id, 7);
  assert.equal((await maker.peekBuried()).id, id);
  assert.equal(Number(await maker.kick(10)), 1);
  assert.equal((await worker.reserveJob(id)).id, id);
  await worker.delete(id);
  await assert.rejects(worker.reserveWithTimeout(0), /TIMED_OUT/);
  await assert.rejects(maker.peek(id), /NOT_FOUND/);
  const many = await Promise.all(Array.from({ length: 100 }, (_, n) => maker.put(`job ${n}`)));
  assert.match(await maker.statsTube('jackd'), /current-jobs-ready: 100\n/);
  for (const expected of many) {
    job = await worker.reserve();
    assert.equal(job.id, expected);
    await worker.delete(job.id);
  }
  await maker.put({ delayed: true }, { delay: 3600 });
  job = await maker.peekDelayed();
  assert.deepEqual(JSON.parse(job.payload), { delayed: true });
  await maker.delete(job.id);
  assert.match(await maker.listTubes(), /- default\n/);
  await maker.disconnect();
  await worker.disconnect();
  console.log('done');
}

main(Number(process.argv[2])).then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
