/** Options, checked before anything begins: the error names the one that cannot be. */
import { validateHeaderName, validateHeaderValue } from 'node:http';

/** What is left over when all the options that there are were taken out. */
export function checkNoneIsLeft(options) {
  const [name] = Object.keys(options);
  if (name !== undefined) throw new TypeError(`there is no option ${name}`);
}

export function checkSeconds(name, value, { positive = false, most = Infinity } = {}) {
  if (typeof value === 'number' && (positive ? value > 0 : value >= 0) && value <= most) return;
  const range = `${positive ? 'above' : 'from'} 0${most === Infinity ? '' : ` to ${most}`}`;
  throw new RangeError(`${name} is a number of seconds ${range}`);
}

/** The url as a URL. */
export function checkedUrl(url) {
  const address = parsed(url);
  if (!['http:', 'https:'].includes(address?.protocol)) {
    throw new TypeError(`url is like http://localhost:8000, or with https:, but not ${url}`);
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
  if (typeof headers !== 'object' || headers === null) throw new TypeError('headers is an object of strings');
  for (const [name, value] of Object.entries(headers)) {
    try {
      validateHeaderName(name);
      validateHeaderValue(name, value);
    } catch (cause) {
      throw new TypeError(`headers: ${cause.message}`, { cause });
    }
  }
}
