/** A delivery: runs the handler of one job, and sends the outcome to the service. */
import { Bury, Lost, Retry, asReason, outcomeOf, reasonOfDeath } from './outcome.js';
import { WorkerJob } from '../job.js';
import { Lease, lossOf } from './lease.js';
import { secondsSince } from './report.js';

const OVER = ['deleted', 'stopping']; // after these, a late finish does not count, or must not be sent

export class Delivery {
  #job;
  #outbox;
  #report;
  #begun = performance.now();
  #lease = null; // stays null for a job with ttr 0, which its pop finished
  #handling = false;

  constructor(job, outbox, report) {
    this.#job = new WorkerJob(job);
    this.#outbox = outbox;
    this.#report = report;
  }

  /** Whether the handler is running. */
  get handling() {
    return this.#handling;
  }

  /** Runs the handler and ends the job; resolves once the service has answered. Never rejects. */
  async run(handler, keep_alive_s) {
    const { due, ready, ttr } = this.#job;
    this.#report.job('started', this.#job, { late_s: Math.round(Date.now() - (ready ?? due) * 1000) / 1000 });
    if (ttr > 0) this.#lease = new Lease(this.#job, this.#outbox, keep_alive_s, (reason) => this.#lose(reason));
    this.#handling = true;
    const end = await this.#handle(handler);
    this.#handling = false;
    this.#lease?.end();
    if (end) await this.#send(end);
  }

  /** Releases the job without running its handler. */
  async giveBack() {
    const answer = await this.#ask('release', { delay: 0, attempt: false });
    if (answer?.success) this.#report.job('returned', this.#job);
  }

  /** The grace period is over: if the handler is still running, it loses its job, which is released. */
  async stop() {
    if (!this.#handling || this.#job.lost) return;
    this.#lose('stopping');
    if (!this.#lease) return;
    const answer = await this.#ask('release', { delay: 0, reason: 'stopping' });
    if (answer?.state === 'dead') this.#report.death('died', this.#job, this.#ending({ reason: 'stopping' }));
  }

  /** The outcome to send; null if the job is lost and nothing is sent. */
  async #handle(handler) {
    try {
      await handler(this.#job, { signal: this.#job.signal });
      return OVER.includes(this.#job.lost) ? null : { event: 'finished', command: 'finish', fields: {} };
    } catch (error) {
      if (error instanceof Lost) this.#lose(error.reason);
      else if (this.#job.lost) this.#afterLosing(error);
      return this.#job.lost ? null : this.#afterThrowing(error);
    }
  }

  /** Reports an error other than the abort of the signal: someone must see it, even if another worker has the job. */
  #afterLosing(error) {
    if (error?.name === 'AbortError' || error instanceof Bury || error instanceof Retry) return;
    this.#report.raised(this.#job, this.#ending({ reason: asReason(error), error }));
  }

  #afterThrowing(error) {
    const outcome = outcomeOf(error, this.#job);
    if (outcome.event === 'failed') this.#report.raised(this.#job, this.#ending({ ...outcome.fields, error }));
    return { ...outcome, error };
  }

  async #send({ event, command, fields, error }) {
    const ending = this.#ending({ reason: fields.reason ?? null, error });
    const answer = this.#lease === null ? { success: true } : await this.#ask(command, fields);
    if (answer === undefined) return; // the worker stopped before the service answered
    // Any other refusal is due to a defect: the job is delivered again after its TTR, as if expired.
    if (!answer.success) return this.#lose(lossOf(answer) ?? 'expired');
    this.#over(event, ending, command === 'release' && answer.state === 'dead');
  }

  /** Reports the end. For a job that died, no retry is reported, but a failure of its handler is. */
  #over(event, ending, died) {
    if (event === 'finished') return this.#report.job('finished', this.#job, { seconds: ending.seconds });
    if (event === 'buried') return this.#report.death('buried', this.#job, ending);
    if (!died || event === 'failed') this.#report.job(event, this.#job, ending);
    if (died) this.#report.death('died', this.#job, { ...ending, reason: reasonOfDeath(event, ending) });
  }

  /** The fields of the events at the end of a delivery; `seconds` is its duration until now. */
  #ending(fields) {
    return { seconds: secondsSince(this.#begun), ...fields };
  }

  #ask(command, fields) {
    const { id, lease } = this.#job;
    return this.#outbox.send({ command, id, lease, ...fields });
  }

  #lose(reason) {
    if (this.#job.lost) return;
    this.#lease?.end();
    this.#job.lose(reason);
    const event = reason === 'expired' ? 'expired' : 'lost';
    this.#report.job(event, this.#job, this.#ending(reason === 'expired' ? {} : { reason }));
  }
}
