/** Run by `npm run check`: where a client's token comes from, its form, and that nothing shows it. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { inspect } from 'node:util';

import { Client, Worker } from '../src/index.js';
import { Token } from '../src/token.js';

// Made with another program's CRC-32. The second one's checksum begins with the digit 0.
const ONE = 'jqt_orders01Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9x3PwsY5';
const PADDED = 'jqt_00000002sssssssssssssssssssssssssssssssssssssssssss0YwW25';
const WRONG = `${ONE.slice(0, -1)}6`;
const url = 'http://localhost:1';

const folder = mkdtempSync(join(tmpdir(), 'jq-token-'));
const file = join(folder, 'token');
process.on('exit', () => rmSync(folder, { recursive: true }));

const shown = (options, environment = {}, isTaken = false) => new Token(options, isTaken, environment).shown;

test('the token is the option, or what the file holds, or JOBQUEUE_TOKEN', () => {
  writeFileSync(file, `${ONE}\n`);
  assert.equal(shown({ token: PADDED }, { JOBQUEUE_TOKEN: ONE }), `Bearer ${PADDED}`);
  assert.equal(shown({ token_file: file }, { JOBQUEUE_TOKEN: PADDED }), `Bearer ${ONE}`);
  assert.equal(shown({}, { JOBQUEUE_TOKEN: ONE }), `Bearer ${ONE}`);
  assert.equal(shown({}, { JOBQUEUE_TOKEN: '' }), null);
  assert.equal(shown({}), null);
});

test('a token that begins as the service\'s do and has a typing error is refused before anything is sent', () => {
  for (const wrong of [WRONG, ONE.slice(0, -1), `${ONE}x`, ONE.toLowerCase(), 'jqt_', ONE.replace('9', '-')]) {
    for (const Type of [Client, Worker]) {
      assert.throws(() => new Type(url, { token: wrong }), { name: 'TypeError', message: /^token has a typing error/ });
    }
    writeFileSync(file, wrong);
    assert.throws(() => new Client(url, { token_file: file }), { name: 'TypeError', message: /token_file/ });
    assert.throws(() => shown({}, { JOBQUEUE_TOKEN: wrong }), { name: 'TypeError', message: /JOBQUEUE_TOKEN/ });
  }
});

test('a token of a proxy is sent as it is, if a header can hold it', () => {
  assert.equal(shown({ token: 'proxy.token-1=' }), 'Bearer proxy.token-1=');
  for (const wrong of ['', 'a b', 'a\r\nX: y', 'ä', 7, {}]) assert.throws(() => shown({ token: wrong }), /token/);
});

test('one place for credentials: the option excludes others, and the environment stands back', () => {
  assert.throws(() => new Client(url, { token: ONE, token_file: file }), /not both/);
  for (const taken of [{ headers: { authorization: 'Basic x' } }, { url: 'http://user:word@localhost:1' }]) {
    assert.throws(() => new Client({ url, ...taken, token: ONE }), /not both/);
  }
  assert.equal(shown({}, { JOBQUEUE_TOKEN: ONE }, true), null);
});

test('a file that cannot be read is told at once, by the option\'s name', () => {
  assert.throws(() => new Client(url, { token_file: join(folder, 'none') }), { name: 'TypeError', message: /^token_file/ });
  assert.throws(() => new Client(url, { token_file: folder }), /^TypeError: token_file/);
});

test('a file is read again only for the token that it had, and a broken one changes nothing', () => {
  writeFileSync(file, ONE);
  const token = new Token({ token_file: file }, false, {});
  const first = token.shown;
  assert.equal(token.isReplaced(first), false);
  for (const broken of ['', WRONG, ONE.slice(0, 30)]) {
    writeFileSync(file, broken);
    assert.equal(token.isReplaced(first), false);
    assert.equal(token.shown, first);
  }
  writeFileSync(file, PADDED);
  assert.equal(token.isReplaced(first), true);
  rmSync(file);
  assert.equal(token.isReplaced(first), true); // another request has read it
  assert.equal(token.isReplaced(token.shown), false);
});

test('no way of showing a client, a worker or an error shows the token', () => {
  const said = [];
  for (const Type of [Client, Worker]) {
    const one = new Type(url, { token: ONE });
    said.push(inspect(one, { showHidden: true, depth: Infinity }), JSON.stringify(one), String(one));
    try {
      new Type(url, { token: WRONG });
    } catch (error) {
      said.push(inspect(error), error.stack);
    }
  }
  for (const wrong of [`ftp://x:${ONE}@host`, `http://x:${ONE}@a,b`]) {
    assert.throws(() => new Client({ urls: [wrong] }), (error) => said.push(error.message) > 0);
  }
  assert.ok(said.every((text) => !text.includes(ONE.slice(12, 40))), said.join('\n'));
});
