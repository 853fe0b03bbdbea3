/** Run by `npm run check`: a client and a worker whose token a service refuses, or limits; against a server of the test's own. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { Client, ForbiddenError, TooFastError, UnauthorizedError, UnreachableError, Worker } from '../src/index.js';
import { Contact } from '../src/worker/contact.js';
import { Report } from '../src/worker/report.js';

const OLD = 'jqt_orders01Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9x3PwsY5';
const NEW = 'jqt_00000002sssssssssssssssssssssssssssssssssssssssssss0YwW25';
const QUIET = { info() {}, error() {} };
const REFUSED = { status: 401, answer: { success: false, id: null, code: 'UNAUTHORIZED', error: 'no valid token' } };
const JOB = { id: 'x', topic: 't', value: 1, lease: 1, attempt: 1, tries: 16, due: 0, ttr: 60, headers: null };

/** A server. `reply(command or commands, headers)` gives `{status, answer, headers}`. Its `requests` are kept. */
async function serving(t, reply) {
  const requests = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const part of request) text += part;
    const asked = JSON.parse(text);
    requests.push({ asked, headers: request.headers, names: request.rawHeaders.filter((_, place) => place % 2 === 0) });
    const { status = 200, answer, headers = {} } = reply(asked, request.headers);
    response.writeHead(status, headers).end(JSON.stringify(answer));
  });
  t.after(() => server.close());
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  return { url: `http://127.0.0.1:${server.address().port}`, requests };
}

function clientOf(t, url, options) {
  const client = new Client(url, options);
  t.after(() => client.close());
  return client;
}

function tokenFile(t, text) {
  const folder = mkdtempSync(join(tmpdir(), 'jq-access-'));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'token'), text);
  return join(folder, 'token');
}

const accepts = (token, answer = { success: true }) => (asked, headers) => (
  headers.authorization === `Bearer ${token}` ? { answer } : REFUSED
);

test('requests show the token, and have none of the headers that mark a browser', async (t) => {
  const { url, requests } = await serving(t, accepts(OLD));
  await clientOf(t, url, { token: OLD }).stats();
  const [{ names }] = requests;
  assert.deepEqual(names.filter((name) => /^(origin|sec-)/i.test(name)), []);
  assert.equal(names.filter((name) => name.toLowerCase() === 'authorization').length, 1);
});

test('the commands about tokens have their fields', async (t) => {
  const { url, requests } = await serving(t, () => ({ answer: { success: true } }));
  const client = clientOf(t, url);
  await client.whoami();
  await client.token('create', { name: 'shop', rights: ['produce'], expires: 'never' });
  await client.token('list');
  await client.token('rotate', { id: 'aaaaaaaa', keep: 60 });
  assert.deepEqual(requests.map(({ asked }) => asked), [
    { command: 'whoami' },
    { command: 'token', action: 'create', name: 'shop', rights: ['produce'], expires: 'never' },
    { command: 'token', action: 'list' },
    { command: 'token', action: 'rotate', id: 'aaaaaaaa', keep: 60 },
  ]);
  await assert.rejects(client.token('revoke', 'aaaaaaaa'), { name: 'TypeError', message: /{ id: 'aaaaaaaa' }/ });
});

test('without a token, no Authorization is sent', async (t) => {
  const { url, requests } = await serving(t, () => ({ answer: { success: true } }));
  await clientOf(t, url).stats();
  assert.equal(requests[0].headers.authorization, undefined);
});

test('a token that was replaced in its file is found after the refusal of the old one', async (t) => {
  const { url, requests } = await serving(t, accepts(NEW));
  const file = tokenFile(t, OLD);
  const client = clientOf(t, url, { token_file: file });
  writeFileSync(file, `${NEW}\n`);
  await client.run('x'); // not safe to repeat, but a refused token means that nothing was done
  await client.run('x');
  assert.deepEqual(requests.map(({ headers }) => headers.authorization), [OLD, NEW, NEW].map((each) => `Bearer ${each}`));
});

test('requests in flight at the time of the change all find the new token', async (t) => {
  const { url, requests } = await serving(t, accepts(NEW));
  const file = tokenFile(t, OLD);
  const client = clientOf(t, url, { token_file: file });
  writeFileSync(file, NEW);
  await Promise.all(Array.from({ length: 10 }, () => client.stats()));
  assert.equal(requests.length, 20);
});

test('a refused token is an UnauthorizedError at once, alone and in a batch', async (t) => {
  const { url, requests } = await serving(t, () => REFUSED);
  const client = clientOf(t, url, { token: OLD });
  await assert.rejects(client.stats(), (error) => error instanceof UnauthorizedError && error.status === 401);
  await assert.rejects(client.batch([{ command: 'stats' }, { command: 'stats' }]), UnauthorizedError);
  assert.equal(requests.length, 2);
  const other = clientOf(t, url, { token_file: tokenFile(t, OLD) });
  await assert.rejects(other.stats(), UnauthorizedError);
});

test('a ForbiddenError has the right and the topic that were missing', async (t) => {
  const answer = { success: false, code: 'FORBIDDEN', error: 'this token may not', right: 'produce', topic: 'mail' };
  const { url } = await serving(t, (asked) => (
    Array.isArray(asked) ? { answer: asked.map(() => answer) } : { status: 403, answer: { ...answer, topic: undefined } }
  ));
  const client = clientOf(t, url, { token: OLD });
  const refused = ({ right, topic, status }) => ({ right, topic, status });
  await assert.rejects(client.add('mail', 1), (error) => {
    assert.deepEqual(refused(error), { right: 'produce', topic: null, status: 403 });
    return error instanceof ForbiddenError;
  });
  const [error] = await client.batch([{ command: 'add', topic: 'mail', body: 1 }]);
  assert.deepEqual(refused(error), { right: 'produce', topic: 'mail', status: 403 });
});

test('what came too fast is repeated after the time that the service says, every command', async (t) => {
  const times = [];
  const tooFast = { success: false, code: 'TOO_FAST', error: 'too many commands', retry_after: 0.2 };
  const { url } = await serving(t, () => {
    times.push(performance.now());
    return times.length % 2 ? { status: 429, answer: tooFast } : { answer: { success: true, id: null } };
  });
  const client = clientOf(t, url);
  for (const ask of [() => client.add('t', 1), () => client.pop('t'), () => client.purge('t'), () => client.kick('x')]) {
    times.length = 0;
    await ask();
    assert.ok(times[1] - times[0] >= 199, `${times[1] - times[0]} ms`);
  }
  times.length = 0;
  await assert.rejects(clientOf(t, url, { retry_for_s: 0 }).stats(), TooFastError);
});

test('a worker whose topic is forbidden stops at once, with the error', async (t) => {
  const { url } = await serving(t, () => (
    { status: 403, answer: { success: false, code: 'FORBIDDEN', error: 'no', right: 'consume', topic: 't' } }
  ));
  const worker = new Worker(url, { token: OLD, logger: QUIET });
  worker.job('t', () => {});
  await assert.rejects(worker.run(), (error) => error instanceof ForbiddenError && error.topic === 't');
});

test('a worker keeps the end of a job while its token is refused, and sends it with the new one', async (t) => {
  const file = tokenFile(t, OLD);
  const events = [];
  let accepted = OLD;
  let jobs = [JOB];
  let refused = 0;
  const { url, requests } = await serving(t, (asked, headers) => {
    if (headers.authorization !== `Bearer ${accepted}`) {
      if (++refused === 4) writeFileSync(file, NEW);
      return REFUSED;
    }
    const answers = [asked].flat().map(({ command }) => (
      command === 'pop' ? { success: true, jobs: jobs.splice(0) } : { success: true, state: 'finished' }
    ));
    return { answer: Array.isArray(asked) ? answers : answers[0] };
  });
  const worker = new Worker(url, {
    token_file: file, logger: QUIET, concurrency: 1, on_event: (name) => {
      events.push(name);
      if (name === 'job.finished') worker.stop();
    },
  });
  worker.job('t', () => { accepted = NEW; });
  assert.equal(await worker.run(), true);
  const finishes = requests.filter(({ asked }) => [asked].flat()[0].command === 'finish');
  assert.equal(finishes.at(-1).headers.authorization, `Bearer ${NEW}`);
  assert.ok(finishes.length > 2);
  assert.deepEqual(events.filter((name) => /^(service|job.lost|job.exp)/.test(name)), ['service.lost', 'service.back']);
});

test('a worker gives up once its token was refused all the time, and only then', async () => {
  const errorOf = (code) => Object.assign(new Error(code), { code });
  const given = [];
  const contact = new Contact(new Report('w', {}, QUIET), (error) => given.push(error), 30);
  const passes = () => new Promise((resolve) => { setTimeout(resolve, 40); });
  const refused = errorOf('UNAUTHORIZED');
  for (const other of [() => contact.answered(), () => contact.failed(errorOf('UNAVAILABLE'))]) {
    contact.failed(refused);
    await passes();
    other(); // the token was accepted, or could not be judged
    contact.failed(refused);
    assert.deepEqual(given, []);
  }
  await passes();
  contact.failed(new UnreachableError('no connection', { maybe_done: false }));
  assert.deepEqual(given, []);
  contact.failed(refused);
  assert.deepEqual(given, [refused]);
});
