/**
 * Traces: OpenTelemetry spans of adds, pops, handlers and the ends of jobs. A job's headers carry the context of its
 * add to its handler, as W3C Trace Context. Only the API of OpenTelemetry is used; without an SDK it does nothing.
 */
import { createRequire } from 'node:module';
import { inspect } from 'node:util';

import { JobQueueError } from './errors.js';

const VERSION = '0.1.0'; // of this package
const MOST_HEADERS = 16; // the service's limits for the headers of a job
const LONGEST_HEADER = 128; // characters
const MOST_LINKS = 128;

const TOPIC = 'messaging.destination.name';
const ID = 'messaging.message.id';
const COUNT = 'messaging.batch.message_count';
const ATTEMPT = 'messaging.jobqueue.attempt';

const OTHER = '_OTHER'; // the error.type that OpenTelemetry has for what is in no class

const TRACEPARENT = /^(?!ff)([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/;

class Tracing {
  #api;

  /** @param {object} api the module @opentelemetry/api */
  constructor(api) {
    this.#api = api;
  }

  /** Sends an add by `send`, in a span whose context goes into the job's headers. Returns or throws what `send` does. */
  add(command, send) {
    const span = this.#sending([command], { [ID]: command.id });
    return this.#until(span, this.#within(span, async () => {
      const answer = await send(this.#injected(command, span));
      span.setAttribute(ID, answer.id);
      return answer;
    }));
  }

  /** Sends a batch by `send`, with one span for all of its adds, if there are any. Returns or throws what `send` does. */
  batch(commands, send) {
    const adds = commands.filter(isAdd);
    if (adds.length === 0) return send(commands);
    const span = this.#sending(adds, { [COUNT]: adds.length });
    return this.#until(span, this.#within(span, async () => {
      const results = await send(commands.map((each) => (isAdd(each) ? this.#injected(each, span) : each)));
      const refused = results.find((result, place) => isAdd(commands[place]) && result instanceof JobQueueError);
      if (refused) this.#refused(span, refused);
      return results;
    }));
  }

  /** An add with the current context in its headers, without a span of its own: an outbox sends it later. */
  inCurrent(command) {
    const { context, trace } = this.#api;
    const span = trace.getSpan(context.active());
    return span === undefined ? command : this.#injected(command, span);
  }

  /** A pop is about to be sent. Returns the function to call with its job, or with its jobs if the pop has a count. */
  receiving() {
    const startTime = Date.now();
    return (received) => {
      const jobs = [received].flat();
      if (jobs.length === 0) return;
      const links = jobs.map(({ headers }) => this.#contextIn(headers)).filter(Boolean).slice(0, MOST_LINKS);
      this.#start('receive', 'pop', theOnly(jobs.map(({ topic }) => topic)), {
        kind: this.#api.SpanKind.CLIENT,
        startTime,
        links: links.map((context) => ({ context })),
        attributes: Array.isArray(received) ? { [COUNT]: jobs.length } : { [ID]: received.id },
      }).end();
    };
  }

  /** Sends a finish, release or bury of the client by `send`. Returns or throws what `send` does. */
  settle(about, send) {
    const span = this.#settling(about);
    return this.#until(span, this.#within(span, send));
  }

  /**
   * The same for a command of a worker, whose answer may be an error that is not thrown.
   * @param {ProcessSpan|null} process null for a job whose handler did not run
   */
  settleOf(process, about, send) {
    // The new span is not made the current one: other jobs share the request, and more jobs begin with its answer.
    return this.#until(this.#settling(about, process?.context), send());
  }

  /** Begins the span of a WorkerJob's handler. */
  process(job) {
    const { context, trace, SpanKind } = this.#api;
    const sent = this.#contextIn(job.headers);
    const parent = sent ? trace.setSpanContext(context.active(), sent) : context.active();
    const span = this.#start('process', 'process', job.topic, {
      kind: SpanKind.CONSUMER,
      links: sent ? [{ context: sent }] : [],
      attributes: { [ID]: job.id, [ATTEMPT]: job.attempt },
    }, parent);
    if (job.attempt > 1 || job.ready !== null) span.addEvent('jobqueue.redelivery', { [ATTEMPT]: job.attempt });
    return new ProcessSpan(this.#api, span, trace.setSpan(parent, span));
  }

  #sending(adds, attributes) {
    return this.#start('send', 'add', theOnly(adds.map(({ topic }) => topic)), {
      kind: this.#api.SpanKind.PRODUCER,
      attributes,
    });
  }

  #settling({ command, id, topic }, parent) {
    return this.#start('settle', command, topic, { kind: this.#api.SpanKind.CLIENT, attributes: { [ID]: id } }, parent);
  }

  /** Starts a span; without a `parent`, a context, it belongs to the current one. */
  #start(type, operation, topic, { attributes, ...options }, parent = this.#api.context.active()) {
    // Not kept: if the program has another copy of the API, a tracer made before its SDK would never find that SDK.
    const tracer = this.#api.trace.getTracer('jobqueue-client', VERSION);
    return tracer.startSpan(typeof topic === 'string' ? `${type} ${topic}` : type, {
      ...options,
      attributes: {
        'messaging.system': 'jobqueue',
        'messaging.operation.name': operation,
        'messaging.operation.type': type,
        [TOPIC]: topic,
        ...attributes,
      },
    }, parent);
  }

  /** Calls `work` with the span as the current one, so that spans of its HTTP requests belong to it. */
  #within(span, work) {
    const { context, trace } = this.#api;
    return context.with(trace.setSpan(context.active(), span), work);
  }

  /** Ends the span once the promise is settled; returns or throws what the promise does. */
  async #until(span, promise) {
    try {
      const result = await promise;
      if (result instanceof JobQueueError) this.#refused(span, result);
      return result;
    } catch (error) {
      this.#refused(span, error);
      throw error;
    } finally {
      span.end();
    }
  }

  #refused(span, error) {
    const { name, message } = described(error);
    span.setStatus({ code: this.#api.SpanStatusCode.ERROR, message });
    span.setAttribute('error.type', (error instanceof JobQueueError && error.code) || name);
  }

  /** An add with the context of the span in its headers, unless they have a context of their own or have no room. */
  #injected(command, span) {
    const { traceId, spanId, traceFlags, traceState } = span.spanContext();
    const headers = command.headers ?? {};
    if (!this.#api.isSpanContextValid({ traceId, spanId }) || !isPlain(headers)) return command;
    const names = Object.keys(headers).filter((name) => headers[name] !== undefined); // those that are sent
    const room = MOST_HEADERS - names.length;
    if (room < 1 || names.some((name) => /^trace(parent|state)$/i.test(name))) return command;
    const traceparent = `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`;
    const tracestate = traceState?.serialize();
    const fits = tracestate && tracestate.length <= LONGEST_HEADER && room > 1;
    return { ...command, headers: { ...headers, traceparent, ...(fits && { tracestate }) } };
  }

  /** The context of a span in the headers of a job; null if there is none, or an invalid one. */
  #contextIn(headers) {
    const found = TRACEPARENT.exec(valueOf(headers, 'traceparent'));
    if (found === null) return null;
    const [, version, traceId, spanId, flags, more] = found;
    if (version === '00' && more) return null; // only later versions may have more
    if (!this.#api.isSpanContextValid({ traceId, spanId })) return null;
    const tracestate = valueOf(headers, 'tracestate');
    return {
      traceId,
      spanId,
      traceFlags: Number.parseInt(flags, 16),
      traceState: tracestate ? this.#api.createTraceState(tracestate) : undefined,
      isRemote: true,
    };
  }
}

/** The span around the handler of a job, until the service has answered how the job ended. */
class ProcessSpan {
  #api;
  #span;

  /** @param {Context} context the one in which the span is current */
  constructor(api, span, context) {
    this.#api = api;
    this.#span = span;
    this.context = context;
  }

  /** The handler, with the span as the current one while it runs. */
  around(handler) {
    return (...given) => this.#api.context.with(this.context, handler, undefined, ...given);
  }

  /** The handler threw an error other than Retry, Bury and Lost. */
  failed(error) {
    const shown = described(error);
    this.#span.recordException(shown);
    this.#span.setStatus({ code: this.#api.SpanStatusCode.ERROR, message: shown.message });
    this.#span.setAttribute('error.type', shown.name);
  }

  /** The job is lost. */
  lost(reason) {
    this.#span.addEvent('jobqueue.lost', { reason });
  }

  /** The job is a dead letter. `reason`: null if none is known. */
  dead(reason) {
    this.#span.addEvent('jobqueue.dead_letter', reason == null ? {} : { reason });
  }

  end() {
    this.#span.end();
  }
}

/** Null unless @opentelemetry/api is installed. */
export const tracing = loaded();

function loaded() {
  try {
    return new Tracing(createRequire(import.meta.url)('@opentelemetry/api'));
  } catch {
    return null; // a package that is optional must not keep the client from being loaded
  }
}

function isAdd({ command }) {
  return command === 'add';
}

/** The value that all have; undefined if they differ. */
function theOnly(values) {
  return values.every((each) => each === values[0]) ? values[0] : undefined;
}

/** Whether headers are sent as their own properties; the service refuses most others. */
function isPlain(headers) {
  return Object.prototype.toString.call(headers) === '[object Object]' && headers.toJSON === undefined;
}

/** The text of a header, whatever the case of its name; undefined if there is none. */
function valueOf(headers, wanted) {
  const [, value] = Object.entries(headers ?? {}).find(([name]) => name.toLowerCase() === wanted) ?? [];
  return typeof value === 'string' ? value : undefined;
}

/** What a span says of an error, or of whatever else was thrown. */
function described(error) {
  try {
    if (!(error instanceof Error)) return { name: OTHER, message: inspect(error) };
    const name = error.name === 'Error' ? error.constructor.name : error.name;
    return { name: String(name), message: String(error.message), stack: error.stack };
  } catch {
    return { name: OTHER, message: 'an error that cannot be shown' }; // a getter threw
  }
}
