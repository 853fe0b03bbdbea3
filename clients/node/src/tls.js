/** TLS: the certificates of https connections. They are always checked. */
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { connect, createSecureContext } from 'node:tls';

/** For https.Agent. Set explicitly, so that NODE_TLS_REJECT_UNAUTHORIZED does not switch the checks off. */
const CHECKED = { rejectUnauthorized: true };

/**
 * The options of an https.Agent.
 * @param {{ca_file?: string, cert_file?: string, key_file?: string}} files PEM, read now; see ../types/client.d.ts
 * @param {URL[]} urls
 * @throws {TypeError} that names the invalid option
 */
export function tlsOf(files, urls) {
  const given = Object.entries(files).filter(([, file]) => file != null);
  if (given.length === 0) return CHECKED;
  const [[first]] = given;
  if (!urls.some(({ protocol }) => protocol === 'https:')) throw new TypeError(`${first} is for https URLs`);
  if (files.key_file != null && files.cert_file == null) throw new TypeError('key_file needs cert_file');
  const { ca_file: ca, cert_file: cert, key_file: key = cert } = Object.fromEntries(given.map(read));
  return { ...CHECKED, secureContext: contextOf({ ca, cert, key }, given.map(([name]) => name)) };
}

function read([name, file]) {
  try {
    const text = readFileSync(file, 'utf8');
    if (name !== 'key_file') new X509Certificate(text); // Node itself ignores a ca without certificates
    return [name, text];
  } catch (cause) {
    throw new TypeError(`${name}: ${cause.message}`, { cause });
  }
}

function contextOf(texts, names) {
  try {
    return createSecureContext(texts);
  } catch (cause) {
    throw new TypeError(`${names.join(', ')}: ${cause.message}`, { cause });
  }
}

export const SPEAKS_TLS = 'this port speaks TLS: use https://';

/** Node's codes: the certificate, or one of its issuers, is self-signed or signed by an unknown authority. */
const UNTRUSTED = new Set([
  'UNABLE_TO_GET_ISSUER_CERT', 'DEPTH_ZERO_SELF_SIGNED_CERT', 'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
]);

/** What OpenSSL says about bytes that are not TLS. */
const NOT_TLS = /wrong version number|record layer failure|packet length too long|http request/i;

/** What is wrong with TLS on an https connection that failed, or null if the failure has another cause. */
export function tlsTrouble({ code = '', message }) {
  if (UNTRUSTED.has(code)) return `the certificate is not trusted (${message}): ca_file names the authority to trust`;
  if (/^(ERR_TLS_)?CERT_|^HOSTNAME_MISMATCH/.test(code)) return `the certificate is not valid: ${message}`;
  return NOT_TLS.test(message) ? 'this port does not speak TLS: use http://' : null;
}

/** Whether the server at an http URL speaks TLS: such a server closes a plain connection without an answer. */
export function speaksTls({ hostname, port }, within_ms) {
  const host = hostname.replace(/^\[|\]$/g, '');
  return new Promise((resolve) => {
    const servername = isIP(host) ? '' : host;
    const socket = connect({ host, port: port || 80, servername, rejectUnauthorized: false }); // nothing is sent
    const end = (speaks) => {
      clearTimeout(timer);
      resolve(speaks);
      socket.destroy();
    };
    const timer = setTimeout(() => end(false), within_ms);
    socket.once('secureConnect', () => end(true));
    socket.on('error', ({ message }) => end(/\balert\b/i.test(message))); // such as one that asks for a certificate
    socket.once('close', () => end(false));
  });
}
