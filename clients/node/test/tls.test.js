/** Run by `npm run check`: https, with certificates that openssl makes for the test. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { Client, UnreachableError, Worker } from '../src/index.js';

const folder = mkdtempSync(join(tmpdir(), 'jq-tls-'));
const at = (name) => join(folder, name);
const openssl = (...flags) => execFileSync('openssl', flags, { cwd: folder, stdio: 'pipe' });
const url = 'http://localhost:1';
let server;
let strict;

/** A certificate of the authority `ca`, for a name. */
function certificate(name, subject) {
  openssl('req', '-newkey', 'rsa:2048', '-nodes', '-keyout', `${name}.key`, '-out', `${name}.csr`, '-subj', `/CN=${name}`);
  writeFileSync(at(`${name}.ext`), `subjectAltName = ${subject}\n`);
  openssl('x509', '-req', '-in', `${name}.csr`, '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '1',
    '-extfile', `${name}.ext`, '-out', `${name}.pem`);
}

function authority(name) {
  openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', `${name}.key`, '-out', `${name}.pem`, '-days', '1',
    '-subj', `/CN=${name}`);
}

async function serving(options) {
  const files = { cert: readFileSync(at('server.pem')), key: readFileSync(at('server.key')) };
  const served = createServer({ ...files, ...options }, (request, response) => {
    const { subject } = request.socket.getPeerCertificate();
    request.resume().on('end', () => response.end(JSON.stringify({ success: true, client: subject?.CN ?? null })));
  });
  await new Promise((resolve) => { served.listen(0, '127.0.0.1', resolve); });
  return served;
}

before(async () => {
  for (const name of ['ca', 'other']) authority(name);
  certificate('server', 'IP:127.0.0.1');
  certificate('worker', 'DNS:worker');
  server = await serving({});
  strict = await serving({ ca: readFileSync(at('ca.pem')), requestCert: true, rejectUnauthorized: true });
});

after(() => {
  server.close();
  strict.close();
  rmSync(folder, { recursive: true });
});

/** What a client of a server gets: its answer, or the error. */
async function asked(t, to, options, host = '127.0.0.1') {
  const client = new Client(`https://${host}:${to.address().port}`, { retry_for_s: 0, ...options });
  t.after(() => client.close());
  return client.stats().catch((error) => error);
}

test('a certificate of the authority in ca_file is accepted, any other is not', async (t) => {
  assert.equal((await asked(t, server, { ca_file: at('ca.pem') })).success, true);
  for (const options of [{}, { ca_file: at('other.pem') }]) {
    const error = await asked(t, server, options);
    assert.ok(error instanceof UnreachableError && !error.maybe_done, String(error));
  }
});

test('a port that speaks TLS is recognised, also one that wants a certificate', async (t) => {
  for (const to of [server, strict]) {
    const client = new Client(`http://127.0.0.1:${to.address().port}`, { retry_for_s: 0 });
    t.after(() => client.close());
    await assert.rejects(client.run('x'), { message: /: this port speaks TLS: use https:\/\/$/, maybe_done: false });
  }
});

test('a certificate for another name is not accepted', async (t) => {
  const error = await asked(t, server, { ca_file: at('ca.pem') }, 'localhost');
  assert.ok(error instanceof UnreachableError && !error.maybe_done, String(error));
  assert.match(error.message, /: the certificate is not valid: /);
});

test('Node\'s own switch does not turn the checks off', async (t) => {
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
  t.after(() => { delete process.env.NODE_TLS_REJECT_UNAUTHORIZED; });
  for (const options of [{}, { ca_file: at('other.pem') }]) {
    assert.ok(await asked(t, server, options) instanceof UnreachableError);
  }
});

test('cert_file and key_file show who the client is', async (t) => {
  const files = { ca_file: at('ca.pem'), cert_file: at('worker.pem'), key_file: at('worker.key') };
  assert.equal((await asked(t, strict, files)).client, 'worker');
  assert.ok(await asked(t, strict, { ca_file: at('ca.pem') }) instanceof UnreachableError);
  writeFileSync(at('both.pem'), readFileSync(at('worker.pem')) + readFileSync(at('worker.key')));
  assert.equal((await asked(t, strict, { ca_file: at('ca.pem'), cert_file: at('both.pem') })).client, 'worker');
});

test('files that cannot be used are told at once, by the name of their option', () => {
  const secure = 'https://localhost:1';
  writeFileSync(at('empty.pem'), '');
  for (const Type of [Client, Worker]) {
    for (const name of ['ca_file', 'cert_file']) {
      for (const file of ['none.pem', 'empty.pem', 'worker.key']) {
        assert.throws(() => new Type(secure, { [name]: at(file) }), { name: 'TypeError', message: new RegExp(`^${name}: `) });
      }
    }
    const pair = { cert_file: at('worker.pem'), key_file: at('server.key') };
    assert.throws(() => new Type(secure, pair), { name: 'TypeError', message: /^cert_file, key_file: / });
    assert.throws(() => new Type(secure, { key_file: at('worker.key') }), /key_file needs cert_file/);
    assert.throws(() => new Type(url, { ca_file: at('ca.pem') }), /ca_file is for https/);
  }
});
