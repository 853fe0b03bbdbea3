/** The client, the outbox and the worker of jobqueue: described in ../../README.md, typed in ../types. */
export { Client } from './client.js';
export { Outbox } from './sql_outbox.js';
export { Worker } from './worker/worker.js';
export { Job, WorkerJob } from './job.js';
export { Bury, Lost, Retry } from './worker/outcome.js';
export * from './errors.js';
