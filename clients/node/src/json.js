/**
 * JSON as sent: what JSON.stringify makes of a value, including undefined (dropped from an object, null in an array),
 * but with an error where JSON.stringify would silently change a value.
 */

// The escape that JSON.stringify writes for a lone surrogate, after an even number of backslashes.
const LONE_SURROGATE = /(?<!\\)(?:\\\\)*\\ud[89a-f]/;

/**
 * The JSON of a value.
 * @throws {TypeError} for what JSON cannot represent: NaN, a function, a BigInt, bytes, a Map, a lone surrogate, …
 */
export function encode(value) {
  const text = JSON.stringify(value, faithful);
  if (text.includes('\\ud') && LONE_SURROGATE.test(text)) {
    throw new TypeError('a string with a lone surrogate cannot be sent as JSON');
  }
  return text;
}

/** A replacer for JSON.stringify: keeps undefined and values that JSON can represent, and throws for others. */
function faithful(key, value) {
  if (value === undefined) return value;
  const given = this[key]; // before toJSON, which turns an invalid Date into null and a Buffer into an object
  if (typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value)) return value;
  if (value === null ? given === null : isPlain(value) && !ArrayBuffer.isView(given)) return value;
  throw new TypeError(`${kind(given)} cannot be sent as JSON${key === '' ? '' : ` (${JSON.stringify(key)})`}`);
}

/** False for a Map, a Promise or an Error, which would become {}. */
function isPlain(value) {
  return Array.isArray(value) || Object.prototype.toString.call(value) === '[object Object]';
}

function kind(value) {
  if (typeof value === 'object') return `a ${Object.prototype.toString.call(value).slice(8, -1)}`;
  return typeof value === 'number' ? String(value) : `a value of type ${typeof value}`;
}
