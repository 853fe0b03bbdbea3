/** Options, which are validated before anything else happens: the error names the invalid option. */
import { validateHeaderName, validateHeaderValue } from 'node:http';
import { inspect } from 'node:util';

/** @throws {TypeError} for an option that remains after all known ones were removed */
export function checkNoneIsLeft(options) {
  const [name] = Object.keys(options);
  if (name !== undefined) throw new TypeError(`unknown option ${name}`);
}

export function checkSeconds(name, value, { positive = false, most = Infinity } = {}) {
  if (typeof value === 'number' && (positive ? value > 0 : value >= 0) && value <= most) return;
  const range = `${positive ? 'above' : 'from'} 0${most === Infinity ? '' : ` to ${most}`}`;
  throw new RangeError(`${name} must be a number of seconds ${range}`);
}

const SINGLE = "url must be a single URL; for several, use the option urls: ['http://one', 'http://two']";

/**
 * The arguments of a constructor, `(url, options)` or `(options)` with `url` or `urls`, as `{urls, ...options}`, with
 * parsed URLs.
 */
export function addressed(first, second) {
  if (typeof first === 'string' || first instanceof URL) return addressed({ ...second, ...only(second, first) });
  if (Array.isArray(first)) throw new TypeError(SINGLE);
  if (typeof first !== 'object' || first === null || second !== undefined) {
    throw new TypeError("the arguments must be (url, options) or ({ url, … }), such as 'http://localhost:8000'");
  }
  const { url, urls, ...options } = first;
  if (url === undefined && urls === undefined) {
    const given = Object.keys(options).join(', ') || 'none';
    throw new TypeError(`url or urls is required; the options given are ${given}`);
  }
  if (urls === undefined) return { urls: [checkedUrl('url', url)], ...options };
  if (url !== undefined) throw new TypeError('give url or urls, not both');
  if (!Array.isArray(urls) || urls.length === 0) throw new TypeError('urls must be an array of at least one URL');
  const checked = urls.map((each) => checkedUrl('each of urls', each));
  return { urls: [...new Map(checked.map((each) => [each.href, each])).values()], ...options };
}

/** Returns the first argument as the option `url`; the options in the second one must not contain a URL as well. */
function only(second, url) {
  if (second?.url !== undefined || second?.urls !== undefined) {
    throw new TypeError('give the url as the first argument, or url or urls in the options, not both');
  }
  return { url };
}

function checkedUrl(name, url) {
  if (Array.isArray(url) || (typeof url === 'string' && url.includes(','))) {
    throw new TypeError(name === 'url' ? SINGLE : `${name} must be a single URL, not ${withoutPassword(url)}`);
  }
  const address = parsed(url);
  if (!['http:', 'https:'].includes(address?.protocol) || address.search || address.hash) {
    const not = withoutPassword(url);
    throw new TypeError(`${name} must be an http or https URL such as http://localhost:8000, not ${not}`);
  }
  return address;
}

function withoutPassword(url) {
  return String(url).replace(/\/\/[^/]*@/, '//');
}

function parsed(url) {
  try {
    return new URL(url);
  } catch {
    return null;
  }
}

/** Throws for time-outs and headers that no request can have. */
export function checkLimits({ timeout_s, connect_timeout_s, headers }) {
  checkSeconds('timeout_s', timeout_s, { positive: true });
  checkSeconds('connect_timeout_s', connect_timeout_s, { positive: true });
  checkHeaders(headers);
}

function checkHeaders(headers) {
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

/** For each command, the field that people would pass in place of its options. */
const FIRST_FIELDS = {
  add: 'delay', update: 'delay', release: 'delay', bury: 'reason', touch: 'ttr', finish: 'lease', pop: 'wait',
  pause: 'seconds', peek: 'state', find: 'state', purge: 'state', stats: 'topic', topics: 'pattern', workers: 'topic',
  forecast: 'topic', figures: 'topic', token: 'id', operation: 'kind', actions: 'since', explain: 'life', schedule: 'every',
  schedules: 'pattern',
};

/** Checks that each hook is a function, or missing. */
export function checkFunctions(hooks) {
  for (const [name, hook] of Object.entries(hooks)) {
    if (hook != null && typeof hook !== 'function') throw new TypeError(`${name} must be a function`);
  }
}

/** The field of `add` that a date, or text, was probably meant for; null for other values. */
function fieldOfAdd(value) {
  if (value instanceof Date) return 'at';
  return typeof value === 'string' ? 'id' : null;
}

/**
 * Checks the last argument of a command's method.
 * @throws {TypeError} if it is not an object, as in add(topic, body, 1800)
 */
export function checkedFields(command, fields) {
  const options = fields ?? {};
  const isObject = typeof options === 'object' && !Array.isArray(options);
  if (isObject && !(options instanceof Date)) return options;
  const field = (command === 'add' && fieldOfAdd(options)) || (FIRST_FIELDS[command] ?? 'signal');
  const example = inspect({ [field]: options });
  throw new TypeError(`the last argument of ${command} must be an object such as ${example}, not ${inspect(options)}`);
}

/** With these in `if_exists`, an add without a body keeps the existing one. */
const KEEP_BODY = new Set(['later', 'sooner']);

/** @throws {TypeError} if an add that needs a body has none */
export function checkBody(body, options) {
  if (body === undefined && !KEEP_BODY.has(options?.if_exists)) throw new TypeError('the body must not be undefined');
}

/** @throws {TypeError} if they are not an array of commands, as in batch({ command: 'stats' }) */
export function checkCommands(commands) {
  const wanted = "batch needs an array of commands, such as [{ command: 'stats' }]";
  if (!Array.isArray(commands)) throw new TypeError(`${wanted}, not ${kindOf(commands)}`);
  const wrong = commands.find((each) => typeof each !== 'object' || each === null || Array.isArray(each));
  if (wrong !== undefined || commands.includes(undefined)) throw new TypeError(`${wanted}; one is ${kindOf(wrong)}`);
}

/** What a value is, in an error that must not show it. */
export function kindOf(value) {
  if (value == null) return String(value);
  if (Array.isArray(value)) return 'an array';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
