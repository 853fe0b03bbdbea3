/** Run by `npm run check`: when a client reads its token's file again, and that nothing shows the token. */
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
