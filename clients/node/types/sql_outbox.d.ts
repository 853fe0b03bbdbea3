/** The transactional outbox: rows that are written in the transaction of the caller. */
import type { AddFields, Body, KeepsBody, UpdateFields } from './commands.js';

/** A knex instance, or better a transaction of it. */
export interface KnexConnection {
  (...args: never): unknown;
  raw(sql: string, bindings: readonly (string | number | null)[]): PromiseLike<unknown>;
}

/** A Client or PoolClient of pg; not a Pool, which would write outside of the transaction. */
export interface PgConnection {
  query(text: string, values: (string | number | null)[]): Promise<unknown>;
  getTypeParser: unknown;
}

export type OutboxConnection = KnexConnection | PgConnection;

export interface OutboxOptions {
  /** Also with its schema: `shop.jobqueue_outbox`; default `jobqueue_outbox`. */
  table?: string;
}

export type OutboxAddFields = Omit<AddFields, 'durability'>;
export type OutboxUpdateFields = Omit<UpdateFields, 'durability'>;

/**
 * Writes rows by the connection that it is given; commits nothing, and opens no connection.
 * Every method throws TypeError or RangeError before anything is written, and otherwise what the connection throws.
 */
export class Outbox {
  /** @throws {TypeError} that names the invalid option */
  constructor(options?: OutboxOptions);
  /** Adds a job once the transaction is committed. Gives its id; without one, it makes one. */
  add(connection: OutboxConnection, topic: string, body: Body, fields?: OutboxAddFields): Promise<string>;
  /** With `undefined`, a job that is there keeps its body. */
  add(
    connection: OutboxConnection, topic: string, body: Body | undefined, fields: OutboxAddFields & KeepsBody,
  ): Promise<string>;
  /** Without a `body`, the job keeps its own. */
  update(connection: OutboxConnection, id: string, changes: OutboxUpdateFields): Promise<void>;
  delete(connection: OutboxConnection, id: string): Promise<void>;
}
