/** Options, validated before anything else happens: the error names the invalid one. */
import { validateHeaderName, validateHeaderValue } from 'node:http';

/** @throws {TypeError} for an option that remains once all known ones are taken out */
export function checkNoneIsLeft(options) {
  const [name] = Object.keys(options);
  if (name !== undefined) throw new TypeError(`unknown option ${name}`);
}

export function checkSeconds(name, value, { positive = false, most = Infinity } = {}) {
  if (typeof value === 'number' && (positive ? value > 0 : value >= 0) && value <= most) return;
  const range = `${positive ? 'above' : 'from'} 0${most === Infinity ? '' : ` to ${most}`}`;
  throw new RangeError(`${name} must be a number of seconds ${range}`);
}

/** The option `url`, parsed. */
export function checkedUrl(url) {
  const address = parsed(url);
  if (!['http:', 'https:'].includes(address?.protocol)) {
    throw new TypeError(`url must be an http or https URL such as http://localhost:8000, not ${url}`);
  }
  return address;
}

function parsed(url) {
  try {
    return new URL(url);
  } catch {
    return null;
  }
}

export function checkHeaders(headers) {
  if (typeof headers !== 'object' || headers === null) throw new TypeError('headers must be an object of strings');
  for (const [name, value] of Object.entries(headers)) {
    try {
      validateHeaderName(name);
      validateHeaderValue(name, value);
    } catch (cause) {
      throw new TypeError(`headers: ${cause.message}`, { cause });
    }
  }
}
