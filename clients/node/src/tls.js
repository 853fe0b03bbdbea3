/** TLS: the certificates of https connections. They are always checked. */
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';

/** For https.Agent. Named here, so that NODE_TLS_REJECT_UNAUTHORIZED does not switch the checks off. */
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
