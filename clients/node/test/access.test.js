/** Run by `npm run check`: a client and a worker whose token a service refuses; against a server of the test's own. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { Client, UnreachableError } from '../src/index.js';
import { Contact } from '../src/worker/contact.js';
import { Report } from '../src/worker/report.js';

const OLD = 'jqt_orders01Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9x3PwsY5';
const NEW = 'jqt_00000002sssssssssssssssssssssssssssssssssssssssssss0YwW25';
const QUIET = { info() {}, error() {} };
const REFUSED = { success: false, id: null, code: 'UNAUTHORIZED', error: 'no valid token' };

test('requests in flight at the time of the change all find the new token', async (t) => {
  let requests = 0;
  const server = createServer((request, response) => {
    requests += 1;
    const isKnown = request.headers.authorization === `Bearer ${NEW}`;
    request.resume().on('end', () => response.writeHead(isKnown ? 200 : 401)
      .end(JSON.stringify(isKnown ? { success: true } : REFUSED)));
  });
  t.after(() => server.close());
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  const folder = mkdtempSync(join(tmpdir(), 'jq-access-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'token');
  writeFileSync(file, OLD);
  const client = new Client(`http://127.0.0.1:${server.address().port}`, { token_file: file });
  t.after(() => client.close());
  writeFileSync(file, NEW);
  await Promise.all(Array.from({ length: 10 }, () => client.stats()));
  assert.equal(requests, 20);
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
