/** The fields of commands: from the forms that users may write to those of the protocol. */
import { inspect } from 'node:util';

/** A back-off as text, as on the command line and in Spark: `15,30`. */
const LADDER = /^\s*\d+(\.\d+)?\s*(,\s*\d+(\.\d+)?\s*)*$/;

/** The fields that are times, including those of a filter. */
const TIMES = [
  'at', 'from', 'start', 'since', 'until',
  'died_from', 'died_to', 'due_from', 'due_to', 'created_from', 'created_to',
];

/** A command as sent: with each Date as unix seconds. */
export function wire(command) {
  const { filter, backoff } = command;
  const wired = timed(command);
  if (typeof backoff === 'string' && LADDER.test(backoff)) return { ...wired, backoff: backoff.split(',').map(Number) };
  return typeof filter === 'object' && filter !== null ? { ...wired, filter: timed(filter) } : wired;
}

function timed(fields) {
  const dates = TIMES.filter((each) => fields[each] instanceof Date);
  if (dates.length === 0) return fields;
  return { ...fields, ...Object.fromEntries(dates.map((each) => [each, fields[each].getTime() / 1000])) };
}

const RFC_3339 = /^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/;

/**
 * A field `at` as sent, as unix seconds. Only an outbox needs this: the service itself reads RFC 3339.
 * @throws {TypeError}
 */
export function unixSeconds(at) {
  const seconds = typeof at === 'string' ? secondsOf(at) : at;
  if (typeof seconds === 'number' && seconds >= 0) return seconds;
  const wanted = 'a Date, unix seconds, or an RFC 3339 time with its offset, such as 2026-11-23T09:00:00+01:00';
  throw new TypeError(`at must be ${wanted}, not ${inspect(at)}`);
}

/** NaN for a text that is no RFC 3339, such as one without an offset, which Date.parse would take. */
function secondsOf(text) {
  const found = RFC_3339.exec(text);
  if (found === null) return NaN;
  const [, date, time, fraction = '', offset] = found;
  const local = `${date}T${time}`;
  // Otherwise the 30th of February would be the 2nd of March.
  if (!new Date(`${local}Z`).toJSON()?.startsWith(local)) return NaN;
  return Date.parse(local + fraction + offset.toUpperCase()) / 1000;
}
