/** Run by `npm run check`: https, with a certificate that openssl makes for the test; what all clients do is in tests/conformance. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { Client, UnreachableError } from '../src/index.js';

test('Node\'s own switch does not turn the checks off', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'jq-tls-'));
  t.after(() => rmSync(folder, { recursive: true }));
  execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', 'key.pem', '-out', 'cert.pem',
    '-days', '1', '-subj', '/CN=server', '-addext', 'subjectAltName=IP:127.0.0.1'], { cwd: folder, stdio: 'pipe' });
  const [key, cert] = ['key.pem', 'cert.pem'].map((name) => readFileSync(join(folder, name)));
  const server = createServer({ key, cert }, (request, response) => response.end('{"success":true}'));
  t.after(() => server.close());
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
  t.after(() => { delete process.env.NODE_TLS_REJECT_UNAUTHORIZED; });
  const client = new Client(`https://127.0.0.1:${server.address().port}`, { retry_for_s: 0 });
  t.after(() => client.close());
  await assert.rejects(client.stats(), UnreachableError);
});
