/**
 * The transactional outbox: rows in the caller's own database, written with the caller's connection, in the caller's
 * transaction. Once that is committed, `jobqueue outbox` hands them to the service: see docs/outbox.md.
 */
import { randomUUID } from 'node:crypto';
import { inspect } from 'node:util';

import { unixSeconds, wire } from './fields.js';
import { encode } from './json.js';
import { checkBody, checkNoneIsLeft, checkSeconds, checkedFields, kindOf } from './options.js';
import { tracing } from './tracing.js';

const TABLE = /^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$/;
const COLUMNS = 'id, action, topic, body, due, options';

/** The fields that the last argument of a method may have. */
const FIELDS = {
  add: [
    'id', 'delay', 'at', 'spread', 'ttr', 'priority', 'tries', 'backoff', 'ttl', 'retention', 'if_exists', 'key',
    'headers', 'tags',
  ],
  update: ['body', 'delay', 'at', 'priority', 'ttl'],
};

/**
 * The first argument of each method is a transaction of knex, or a client of node-postgres that is in a transaction.
 * Every method throws, before anything is written, what the client's method of this name throws before anything is
 * sent, and TypeError or RangeError for a field that a row cannot have.
 */
export class Outbox {
  #table;

  constructor({ table = 'jobqueue_outbox', ...rest } = {}) {
    checkNoneIsLeft(rest);
    if (typeof table !== 'string' || !TABLE.test(table)) {
      throw new TypeError(`table must be a name such as jobqueue_outbox or shop.jobqueue_outbox, not ${inspect(table)}`);
    }
    this.#table = table;
  }

  /** Adds a job, and returns its id. */
  async add(connection, topic, body, options) {
    const fields = knownFields('add', options);
    checkBody(body, options);
    checkText('topic', topic);
    const id = fields.id ?? newId(fields.key);
    const command = { ...fields, command: 'add', id, topic, body };
    await this.#write(connection, tracing === null ? command : tracing.inCurrent(command));
    return id;
  }

  /** Changes a job; without a `body`, it keeps its own. */
  async update(connection, id, changes) {
    await this.#write(connection, { ...knownFields('update', changes), command: 'update', id });
  }

  async delete(connection, id) {
    await this.#write(connection, { command: 'delete', id });
  }

  async #write(connection, command) {
    const ofKnex = isKnex(connection);
    if (!ofKnex) checkPg(connection);
    const values = row(wire(command));
    const insert = `INSERT INTO ${this.#table} (${COLUMNS})`;
    if (ofKnex) await connection.raw(`${insert} VALUES (?, ?, ?, ?, ?, ?)`, values);
    else await connection.query(`${insert} VALUES ($1, $2, $3, $4, $5, $6)`, values);
  }
}

/** In a namespace of several shards, an id leads to the shard of its key. */
function newId(key) {
  const made = randomUUID().replaceAll('-', '');
  return key == null ? made : `${key}@${made}`;
}

/** @throws {TypeError} for a field that the relay could not pass on, such as `durability` */
function knownFields(action, options) {
  const fields = checkedFields(action, options);
  const unknown = Object.keys(fields).find((name) => !FIELDS[action].includes(name));
  if (unknown !== undefined) throw new TypeError(`${action} of an outbox has no field ${unknown}`);
  return fields;
}

/** The values of the columns. */
function row({ command, id, topic = null, body, delay, at, ...others }) {
  checkText('id', id);
  encode({ id, topic, delay, at }); // refuses NaN and lone surrogates, as for the client, though these columns are no JSON
  const options = encode(others);
  return [
    id, command, topic, body === undefined ? null : encode(body), dueAt(delay, at), options === '{}' ? null : options,
  ];
}

/** Unix seconds by the clock of this machine; null if no time is given. */
function dueAt(delay, at) {
  if (delay != null && at != null) throw new TypeError('give delay or at, not both');
  if (at != null) return unixSeconds(at);
  if (delay == null) return null;
  checkSeconds('delay', delay);
  return Date.now() / 1000 + delay;
}

function checkText(name, value) {
  if (typeof value !== 'string' || value === '') {
    throw new TypeError(`${name} must be a string of at least one character, not ${inspect(value)}`);
  }
}

function isKnex(connection) {
  return typeof connection === 'function' && typeof connection.raw === 'function';
}

/** @throws {TypeError} unless it is a client of node-postgres */
function checkPg(connection) {
  // The connections of other libraries, and a Pool, have a query() too, but they parse no types of PostgreSQL.
  if (typeof connection?.query === 'function' && typeof connection.getTypeParser === 'function') return;
  const wanted = 'the connection must be a knex instance or transaction, or a Client or PoolClient of pg (node-postgres)';
  if (typeof connection?.connect === 'function' && 'totalCount' in connection) {
    throw new TypeError(`${wanted}, not a Pool, which would write outside of your transaction`);
  }
  throw new TypeError(`${wanted}, not ${kindOf(connection)}`);
}
