/** A delivery: runs the handler of one job, and sends the outcome to the service. */
import { Bury, Lost, Retry, asReason, outcomeOf, reasonOfDeath } from './outcome.js';
import { WorkerJob } from '../job.js';
import { Lease, lossOf } from './lease.js';
import { secondsSince } from './report.js';
import { tracing } from '../tracing.js';

const OVER = ['deleted', 'stopping']; // after these, a late finish does not count, or must not be sent

export class Delivery {
  #job;
  #outbox;
  #report;
  #begun = performance.now();
  #lease = null; // stays null for a job with ttr 0, which its pop finished
  #handling = false;
  #span = null; // that of the handler, if there are traces
  #stopping = false; // the span is then ended by stop(): the handler may never end

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
    this.#span = tracing?.process(this.#job) ?? null;
    this.#report.job('started', this.#job, { late_s: Math.round(Date.now() - (ready ?? due) * 1000) / 1000 });
    if (ttr > 0) this.#lease = new Lease(this.#job, this.#outbox, keep_alive_s, (reason) => this.#lose(reason));
    this.#handling = true;
    const end = await this.#handle(this.#span?.around(handler) ?? handler);
    this.#handling = false;
    this.#lease?.end();
    if (end) await this.#send(end);
    if (!this.#stopping) this.#span?.end();
  }

  /** Releases the job without running its handler. */
  async giveBack() {
    const answer = await this.#ask('release', { delay: 0, attempt: false });
    if (answer?.success) this.#report.job('returned', this.#job);
  }

  /** The grace period is over: if the handler is still running, it loses its job, which is released. */
  async stop() {
    if (!this.#handling || this.#job.lost) return;
    this.#stopping = true;
    this.#lose('stopping');
    if (this.#lease) await this.#releaseStopped();
    this.#span?.end();
  }

  async #releaseStopped() {
    const answer = await this.#ask('release', { delay: 0, reason: 'stopping' });
    if (answer?.state === 'dead') this.#dead('died', this.#ending({ reason: 'stopping' }));
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
    this.#raised({ reason: asReason(error), error });
  }

  #afterThrowing(error) {
    const outcome = outcomeOf(error, this.#job);
    if (outcome.event === 'failed') this.#raised({ ...outcome.fields, error });
    return { ...outcome, error };
  }

  #raised(fields) {
    this.#span?.failed(fields.error);
    this.#report.raised(this.#job, this.#ending(fields));
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
    if (event === 'buried') return this.#dead('buried', ending);
    if (!died || event === 'failed') this.#report.job(event, this.#job, ending);
    if (died) this.#dead('died', { ...ending, reason: reasonOfDeath(event, ending) });
  }

  /** @param {string} event died or buried */
  #dead(event, ending) {
    this.#span?.dead(ending.reason);
    this.#report.death(event, this.#job, ending);
  }

  /** The fields of the events at the end of a delivery; `seconds` is its duration until now. */
  #ending(fields) {
    return { seconds: secondsSince(this.#begun), ...fields };
  }

  #ask(command, fields) {
    const { id, lease, topic } = this.#job;
    const send = () => this.#outbox.send({ command, id, lease, ...fields });
    return tracing === null ? send() : tracing.settleOf(this.#span, { command, id, topic }, send);
  }

  #lose(reason) {
    if (this.#job.lost) return;
    this.#lease?.end();
    this.#job.lose(reason);
    this.#span?.lost(reason);
    const event = reason === 'expired' ? 'expired' : 'lost';
    this.#report.job(event, this.#job, this.#ending(reason === 'expired' ? {} : { reason }));
  }
}
