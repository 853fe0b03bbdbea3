/** The client and the worker of jobqueue. What they do stands in ../../README.md, types in ../types. */
export { Client } from './client.js';
export { Worker } from './worker.js';
export { Job, WorkerJob } from './job.js';
export { Bury, Lost, Retry } from './handler.js';
export * from './errors.js';
