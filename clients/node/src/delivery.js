/** One job in the hands of a worker: its handler runs, and what came of it is told to the service. */
import { Bury, Lost, Retry, asReason } from './handler.js';
import { WorkerJob } from './job.js';
import { Lease, lossOf } from './lease.js';
import { secondsSince } from './report.js';

const OVER = ['deleted', 'stopping']; // losses after which a late finish cannot count, or must not

export class Delivery {
  #job;
  #outbox;
  #report;
  #begun = performance.now();
  #lease = null; // none: a job with ttr 0, which is gone already
  #handling = false;

  constructor(job, outbox, report) {
    this.#job = new WorkerJob(job);
    this.#outbox = outbox;
    this.#report = report;
  }

  /** Whether its handler runs. */
  get handling() {
    return this.#handling;
  }

  /** Run the handler and end the job; over when the service has answered. Never throws. */
  async run(handler, keep_alive_s) {
    const { attempt, due, ttr } = this.#job;
    this.#report.job('started', this.#job, { attempt, late_s: Math.round(Date.now() - due * 1000) / 1000 });
    if (ttr > 0) this.#lease = new Lease(this.#job, this.#outbox, keep_alive_s, (reason) => this.#lose(reason));
    this.#handling = true;
    const end = await this.#handle(handler);
    this.#handling = false;
    this.#lease?.end();
    if (end) await this.#tell(end);
  }

  /** It is not to begin. */
  async giveBack() {
    const answer = await this.#send('release', { delay: 0, attempt: false });
    if (answer?.success) this.#report.job('returned', this.#job);
  }

  /** The grace is over: a handler that still runs is told, and its job given back. */
  async stop() {
    if (!this.#handling || this.#job.lost) return;
    this.#lose('stopping');
    if (this.#lease) await this.#send('release', { delay: 0, reason: 'stopping' });
  }

  /** What is to be told of the job; null: nothing, for it is lost. */
  async #handle(handler) {
    try {
      await handler(this.#job, { signal: this.#job.signal });
      return OVER.includes(this.#job.lost) ? null : { word: 'finished', command: 'finish' };
    } catch (error) {
      return error instanceof Lost || this.#job.lost ? null : this.#afterThrowing(error);
    }
  }

  #afterThrowing(error) {
    if (error instanceof Bury) {
      return { word: 'buried', command: 'bury', fields: { reason: error.reason } };
    }
    if (error instanceof Retry) {
      const { after, attempt, reason } = error;
      return { word: 'retried', command: 'release', fields: { delay: after, attempt, reason } };
    }
    this.#report.failure(this.#job, error);
    return { word: 'failed', command: 'release', fields: { reason: asReason(error) } };
  }

  async #tell({ word, command, fields }) {
    const seconds = secondsSince(this.#begun);
    const answer = this.#lease === null ? { success: true } : await this.#send(command, fields);
    if (answer === undefined) return; // the worker ended before the service answered
    // What the service cannot take, for a defect, comes again after its TTR: lost as if that were over.
    if (!answer.success) return this.#lose(lossOf(answer) ?? 'expired');
    this.#report.job(word, this.#job, word === 'finished' ? { seconds } : { seconds, reason: fields.reason ?? null });
  }

  #send(command, fields) {
    const { id, lease } = this.#job;
    return this.#outbox.send({ command, id, lease, ...fields });
  }

  #lose(reason) {
    if (this.#job.lost) return;
    this.#lease?.end();
    this.#job.lose(reason);
    this.#report.job('lost', this.#job, { seconds: secondsSince(this.#begun), reason });
  }
}
