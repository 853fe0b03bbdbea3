/** The types of jobqueue's client, outbox and worker. */
export * from './client.js';
export * from './sql_outbox.js';
export * from './worker.js';
export * from './job.js';
export * from './commands.js';
export * from './answers.js';
export * from './errors.js';
