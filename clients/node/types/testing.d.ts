/** The test kit: `import { useQueue } from 'jobqueue-client/testing'`. */
import type { JobDescription } from './answers.js';
import type { Client } from './client.js';
import type { WorkerJob } from './job.js';
import type { Worker } from './worker.js';

/**
 * A queue for the tests of a file, or of the `describe` in which this is called: it is there once they begin, empty and at
 * the real time before each of them, and gone after the last. It runs `jobqueue serve --test` (the program in
 * JOBQUEUE_COMMAND, or the one in the PATH), or uses the one at JOBQUEUE_TEST_URL. For node:test.
 */
export function useQueue(): Queue;

/** A queue on a test service, whose clock stands still until `advance`. */
export class Queue {
  /** Uses the test service at an address; call `reset` to empty it. */
  connect(url: string): void;
  /** The service's address, for the code under test. */
  get url(): string;
  /** A client of the service. */
  get client(): Client;
  /** Forgets all jobs and topics, and sets the clock to the real time. */
  reset(): Promise<void>;
  /** The time of the queue's clock. */
  now(): Promise<Date>;
  /** Lets time pass. Afterwards all that fell due is ready, and leases that ran out have ended. A number: seconds. */
  advance(time: number | { seconds?: number; minutes?: number; hours?: number; days?: number }): Promise<void>;
  /**
   * Runs the worker's handlers, here and one after the other, until none of its topics has a ready job. Each job ends as
   * in the worker itself. An error that a handler threw (other than Retry, Bury and Lost) is thrown once its job has
   * ended, unless `raise_errors` is false.
   */
  drain(worker: Worker, options?: { raise_errors?: boolean }): Promise<Done[]>;
  /** The jobs of a topic, or of all, that are delayed or ready; those due first come first. */
  waiting<T = unknown>(topic?: string): Promise<QueuedJob<T>[]>;
  /** The dead letters of a topic, or of all. */
  dead<T = unknown>(topic?: string): Promise<QueuedJob<T>[]>;
  /** Fails unless exactly one waiting job of the topic is as described; gives it. */
  assertWaiting<T = unknown>(topic: string, wanted?: WantedJob): Promise<QueuedJob<T>>;
  /** Fails if any job of the topic, or of any, is delayed or ready. */
  assertNoneWaiting(topic?: string): Promise<void>;
  /** Closes the client's connections. */
  close(): void;
}

export interface WantedJob {
  id?: string;
  body?: unknown;
  /** Seconds until it is ready, by the queue's clock; to a second. */
  delay?: number;
  /** When it is due, as a Date or unix seconds; to a second. */
  at?: Date | number;
}

/** A job that nobody has now. */
export interface QueuedJob<T = unknown> {
  id: string;
  topic: string;
  body: T;
  state: 'delayed' | 'ready' | 'dead';
  /** In unix seconds. */
  due: number;
  /** Seconds until it is ready: 0 for a ready one. */
  delay: number;
  /** All that the service says about it. */
  details: JobDescription<T>;
}

/** A job that was delivered, and how its handler ended. */
export interface Done {
  job: WorkerJob;
  outcome: 'finished' | 'failed' | 'retried' | 'buried' | 'died' | 'lost';
  /** The job's state afterwards. */
  state: string;
  /** What the handler threw. */
  error?: unknown;
}

/** Runs `jobqueue serve --test`, for test runners other than node:test: `start`, `queue.connect(url)`, `stop`. */
export class TestService {
  /** Gives its address once it listens. */
  start(): Promise<string>;
  /** Stops it; its data are gone. */
  stop(): Promise<void>;
}
