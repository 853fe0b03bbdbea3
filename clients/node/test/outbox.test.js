/** Run by `npm run check`: how the ends of jobs are sent, against a server of the test's own that accepts all of them. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';

import { connected } from '../src/addresses.js';
import { Contact } from '../src/worker/contact.js';
import { Outbox } from '../src/worker/outbox.js';
import { Report } from '../src/worker/report.js';

const sizes = [];
const server = createServer(async (request, response) => {
  let text = '';
  for await (const part of request) text += part;
  const commands = JSON.parse(text);
  sizes.push(commands.length);
  response.end(JSON.stringify(commands.map(() => ({ success: true, jobs: [] }))));
});
let addresses;

before(async () => {
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  ({ addresses } = connected(`http://127.0.0.1:${server.address().port}`));
});

after(() => {
  addresses.close();
  server.close();
});

test('a request holds no more than the service takes, the pop with it; and its ends are over before its pop', async () => {
  const open = [];
  const popBeside = () => ({ command: { command: 'pop', topic: 't', count: 1 }, resolve: () => open.push(outbox.open) });
  const outbox = new Outbox(addresses, new Contact(new Report('w')), popBeside);
  await Promise.all(Array.from({ length: 1500 }, () => outbox.send({ command: 'finish', id: 'x', lease: 1 })));
  assert.deepEqual(sizes, [1000, 502]);
  assert.deepEqual(open, [501, 0]);
});
