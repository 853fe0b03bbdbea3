/** JSON as it is sent: compact, and refused where JSON.stringify would change a value without a word. */

// An escape that JSON.stringify makes of a lone surrogate, behind an even number of backslashes.
const LONE_SURROGATE = /(?<!\\)(?:\\\\)*\\ud[89a-f]/;

/**
 * The JSON of a value.
 * @throws {TypeError} for what JSON cannot say: NaN, undefined, a function, bytes, a Map, a lone surrogate, …
 */
export function encode(value) {
  const text = JSON.stringify(value, faithful);
  if (text.includes('\\ud') && LONE_SURROGATE.test(text)) {
    throw new TypeError('a string with half of a surrogate pair cannot be JSON');
  }
  return text;
}

/** For JSON.stringify: gives back what JSON can say, and throws for the rest. */
function faithful(key, value) {
  const given = this[key]; // before its toJSON, which makes null of an invalid Date and an object of a Buffer
  if (typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value)) return value;
  if (value === null ? given === null : isPlain(value) && !ArrayBuffer.isView(given)) return value;
  throw new TypeError(`${kind(given)} cannot be JSON${key === '' ? '' : ` (${JSON.stringify(key)})`}`);
}

/** A Map, a Promise or an Error would become {}. */
function isPlain(value) {
  return Array.isArray(value) || Object.prototype.toString.call(value) === '[object Object]';
}

function kind(value) {
  if (typeof value === 'object') return `a ${Object.prototype.toString.call(value).slice(8, -1)}`;
  return typeof value === 'number' ? String(value) : `a value of type ${typeof value}`;
}
