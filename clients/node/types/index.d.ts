/** The types of jobqueue's client and worker. */
export * from './client.js';
export * from './worker.js';
export * from './job.js';
export * from './commands.js';
export * from './answers.js';
export * from './errors.js';
