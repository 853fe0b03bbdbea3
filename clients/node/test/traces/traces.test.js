/** Run by tests/clients/test_node_traces.py: the spans of the client and the worker, by the SDK of OpenTelemetry. */
import assert from 'node:assert/strict';
import http from 'node:http';
import { before, beforeEach, test } from 'node:test';

import { SpanKind, SpanStatusCode, context, createTraceState, propagation, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { Bury, Client, NotFoundError, Outbox, Retry, UnreachableError, Worker } from 'jobqueue-client';
import { useQueue } from 'jobqueue-client/testing';

const queue = useQueue();
const exporter = new InMemorySpanExporter();
const TRACE = '0af7651916cd43dd8448eb211c80319c';
const SPAN = 'b7ad6b7169203331';
const PARENT = `00-${TRACE}-${SPAN}-01`;
const QUIET = { info() {}, error() {} };

before(() => {
  trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
});
beforeEach(() => exporter.reset());

/** The finished spans of a type, in the order in which they ended. */
function spans(type) {
  return exporter.getFinishedSpans().filter((span) => span.attributes['messaging.operation.type'] === type);
}

function spanOf(type) {
  const found = spans(type);
  assert.equal(found.length, 1, `${found.length} spans: ${type}`);
  return found[0];
}

function traceparent(span) {
  const { traceId, spanId } = span.spanContext();
  return `00-${traceId}-${spanId}-01`;
}

function parentOf({ parentSpanContext }) {
  return parentSpanContext && `00-${parentSpanContext.traceId}-${parentSpanContext.spanId}-01`;
}

function linksOf(span) {
  return span.links.map((link) => `00-${link.context.traceId}-${link.context.spanId}-01`);
}

function idOf({ attributes }) {
  return attributes['messaging.message.id'];
}

function eventsOf(span) {
  return span.events.map(({ name, attributes }) => [name, attributes]);
}

function failureOf({ status, attributes }) {
  return status.code === SpanStatusCode.ERROR ? [attributes['error.type'], status.message] : null;
}

/** Calls `work` with this context as the current one, as if it came from elsewhere. */
function under({ tracestate, flags = 1 }, work) {
  const traceState = tracestate === undefined ? undefined : createTraceState(tracestate);
  const remote = { traceId: TRACE, spanId: SPAN, traceFlags: flags, traceState, isRemote: true };
  return context.with(trace.setSpanContext(context.active(), remote), work);
}

async function headersOf(id) {
  return (await queue.client.get(id)).headers;
}

/** Runs a worker for a number of deliveries. */
async function work(topic, handler, max_jobs = 1, middleware = (_, next) => next()) {
  const worker = new Worker(queue.url, { logger: QUIET, max_jobs });
  worker.use(middleware);
  worker.job(topic, handler);
  assert.equal(await worker.run(), true);
}

/** A proxy in front of the service, whose first answers are these, null for the service's own; and what was sent to it. */
async function proxied(t, ...answers) {
  const sent = [];
  const server = http.createServer(async (request, response) => {
    let body = '';
    for await (const part of request) body += part;
    sent.push(JSON.parse(body));
    const answer = answers.shift() ?? null;
    if (answer !== null) return response.writeHead(answer.code ? 503 : 200).end(JSON.stringify(answer));
    return response.end(await (await fetch(`${queue.url}/command`, { method: 'POST', body })).text());
  });
  t.after(() => server.close());
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  return { url: `http://127.0.0.1:${server.address().port}`, sent };
}

test('an add is a span, whose context is in the headers of the job', async () => {
  const { id } = await under({}, () => queue.client.add('mail', { to: 1 }, { headers: { shop: 'one' } }));
  const span = spanOf('send');
  assert.equal(span.name, 'send mail');
  assert.equal(span.kind, SpanKind.PRODUCER);
  assert.deepEqual(span.attributes, {
    'messaging.system': 'jobqueue',
    'messaging.operation.name': 'add',
    'messaging.operation.type': 'send',
    'messaging.destination.name': 'mail',
    'messaging.message.id': id,
  });
  assert.equal(parentOf(span), PARENT);
  assert.equal(failureOf(span), null);
  assert.deepEqual(await headersOf(id), { shop: 'one', traceparent: traceparent(span) });
});

test('a retry of an add sends the same headers, in the same span', async (t) => {
  const away = { success: false, code: 'SHUTTING_DOWN', error: 'later' };
  const { url, sent } = await proxied(t, away, null, [away, { success: true }]);
  const client = new Client(url);
  await client.add('mail', {});
  await client.batch([{ command: 'add', topic: 'mail', body: 1 }, { command: 'stats' }]);
  client.close();
  const [one, other] = spans('send');
  const [first, second, third, fourth] = sent.map((each) => [each].flat()[0].headers);
  assert.deepEqual([spans('send').length, sent.length], [2, 4]);
  assert.deepEqual([first, second], Array(2).fill({ traceparent: traceparent(one) }));
  assert.deepEqual([third, fourth], Array(2).fill({ traceparent: traceparent(other) }));
  assert.deepEqual([failureOf(one), failureOf(other)], [null, null]);
});

test('the context that the caller gave stays', async () => {
  for (const headers of [{ TraceParent: PARENT }, { tracestate: 'a=b' }]) {
    const { id } = await queue.client.add('mail', {}, { headers });
    assert.deepEqual(await headersOf(id), headers);
  }
});

test('a context goes only where the service has room for it', async () => {
  const many = (count) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`h${at}`, '']));
  const long = (length) => `a=${'x'.repeat(length - 2)}`;
  const added = async (headers, tracestate) => {
    const given = structuredClone(headers);
    const { id } = await under({ tracestate }, () => queue.client.add('mail', {}, { headers: given }));
    assert.deepEqual(given, headers); // the caller's object
    return Object.keys(await headersOf(id)).filter((name) => !/^h\d/.test(name));
  };
  assert.deepEqual(await added(many(16), 'a=b'), []);
  assert.deepEqual(await added(many(15), 'a=b'), ['traceparent']);
  assert.deepEqual(await added(many(14), 'a=b'), ['traceparent', 'tracestate']);
  assert.deepEqual(await added({ ...many(14), not: undefined }, 'a=b'), ['traceparent', 'tracestate']);
  assert.deepEqual(await added(null, long(128)), ['traceparent', 'tracestate']);
  assert.deepEqual(await added(undefined, long(129)), ['traceparent']);
  assert.deepEqual(await added({}, ''), ['traceparent']);
});

test('headers of a wrong type are refused as they are', async (t) => {
  const { url, sent } = await proxied(t);
  const client = new Client(url);
  class Text { toJSON() { return 'a'; } }
  for (const headers of [['a'], 'a', 1, new Text()]) {
    await assert.rejects(client.add('mail', {}, { headers }), { code: 'BAD_FIELD' });
    assert.deepEqual(sent.at(-1).headers, JSON.parse(JSON.stringify(headers)));
  }
  await assert.rejects(client.add('mail', {}, { headers: new Map() }), TypeError);
  await assert.rejects(client.add(Symbol('mail'), {}), { message: /symbol cannot be sent/ });
  client.close();
});

test('a context that is not sampled is passed on, and no context is made up', async () => {
  const { id } = await under({ flags: 0, tracestate: 'a=b' }, () => queue.client.add('mail', {}));
  const { traceparent: sent, tracestate } = await headersOf(id);
  assert.match(sent, new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`));
  assert.equal(tracestate, 'a=b');
  assert.deepEqual(exporter.getFinishedSpans(), []);
});

test('schedules and updates carry no context, and no baggage is sent', async (t) => {
  const { url, sent } = await proxied(t);
  const client = new Client(url);
  const baggage = propagation.setBaggage(context.active(), propagation.createBaggage({ shop: { value: 'one' } }));
  await context.with(baggage, () => client.add('mail', {}, { id: 'a', delay: 60 }));
  await client.schedule('daily', 'mail', {}, { every: 3600 });
  await client.update('a', { delay: 90 });
  await client.delete('a');
  client.close();
  const names = sent.map(({ headers }) => headers && Object.keys(headers));
  assert.deepEqual(names, [['traceparent'], undefined, undefined, undefined]);
  assert.equal(exporter.getFinishedSpans().length, 1);
});

test('an add that is refused, or that the service cannot get, is an error', async () => {
  await assert.rejects(queue.client.add('no topic', {}), { code: 'BAD_FIELD' });
  const away = new Client('http://127.0.0.1:1', { retry_for_s: 0 });
  const thrown = await away.add('mail', {}, { id: 'a' }).catch((error) => error);
  assert.ok(thrown instanceof UnreachableError);
  const aborted = AbortSignal.abort();
  await assert.rejects(queue.client.add('mail', {}, { signal: aborted }), aborted.reason);
  const [refused, unreachable, left] = spans('send');
  assert.equal(failureOf(refused)[0], 'BAD_FIELD');
  assert.match(failureOf(refused)[1], /^add no topic: /);
  assert.deepEqual(failureOf(unreachable), ['UnreachableError', thrown.message]);
  assert.equal(unreachable.attributes['messaging.message.id'], 'a');
  assert.equal(failureOf(left)[0], 'AbortError');
});

test('the adds of a batch share a span', async (t) => {
  const { url, sent } = await proxied(t);
  const client = new Client(url);
  const add = (topic, more) => ({ command: 'add', topic, body: 1, ...more });
  const given = [add('mail'), { command: 'get', id: 'none' }, add('mail', { headers: { traceparent: PARENT } }), add('mail')];
  const before = structuredClone(given);
  await client.batch(given);
  assert.deepEqual(given, before); // the caller's objects
  const results = await client.batch([add('mail'), add('no topic'), add('also none')]);
  const others = await client.batch([{ command: 'stats' }, { command: 'get', id: 'none' }]);
  client.close();
  const [one, mixed, ...rest] = exporter.getFinishedSpans();
  assert.deepEqual(sent[0].map(({ headers }) => headers?.traceparent), [traceparent(one), undefined, PARENT, traceparent(one)]);
  assert.equal(one.name, 'send mail');
  assert.deepEqual(one.attributes, {
    'messaging.system': 'jobqueue',
    'messaging.operation.name': 'add',
    'messaging.operation.type': 'send',
    'messaging.destination.name': 'mail',
    'messaging.batch.message_count': 3,
  });
  assert.equal(failureOf(one), null);
  assert.equal(mixed.name, 'send');
  assert.equal('messaging.destination.name' in mixed.attributes, false);
  assert.deepEqual(failureOf(mixed), ['BAD_FIELD', results[1].message]);
  assert.ok(others[1] instanceof NotFoundError);
  assert.deepEqual(rest, []);
});

test('a pop is a span if it has jobs, linked to their contexts', async () => {
  assert.equal(await queue.client.pop('mail'), null);
  assert.deepEqual(await queue.client.popMany('mail', 2), []);
  assert.deepEqual(exporter.getFinishedSpans(), []);
  await queue.client.add('mail', {}, { id: 'a', headers: { TraceParent: PARENT, TraceState: 'a=b' } });
  await queue.client.add('mail', {}, { id: 'b', headers: { traceparent: 'none' } });
  await queue.client.add('call', {}, { id: 'c' });
  const begun = Date.now();
  const late = queue.client.pop('late', { wait: 5 });
  await queue.client.pop('mail');
  await queue.client.popMany(['mail', 'call'], 5);
  await queue.client.add('late', {});
  await late;
  const [one, many, waited] = spans('receive');
  assert.deepEqual([one.name, one.kind, one.links.length], ['receive mail', SpanKind.CLIENT, 1]);
  assert.deepEqual(one.attributes, {
    'messaging.system': 'jobqueue',
    'messaging.operation.name': 'pop',
    'messaging.operation.type': 'receive',
    'messaging.destination.name': 'mail',
    'messaging.message.id': 'a',
  });
  const { traceId, spanId, traceFlags, traceState } = one.links[0].context;
  assert.deepEqual([traceId, spanId, traceFlags, traceState.serialize()], [TRACE, SPAN, 1, 'a=b']);
  assert.deepEqual([many.name, many.attributes['messaging.batch.message_count']], ['receive', 2]);
  assert.equal('messaging.message.id' in many.attributes, false);
  assert.deepEqual(linksOf(many), [traceparent(spans('send').find(({ name }) => name === 'send call'))]);
  const startedAt = ({ startTime: [seconds, nanoseconds] }) => seconds * 1000 + nanoseconds / 1e6;
  assert.ok(begun <= startedAt(waited) && startedAt(waited) <= startedAt(one)); // when it was sent, not when it was answered
});

test('a pop of many jobs has 128 links', async () => {
  await queue.client.batch(Array.from({ length: 130 }, () => ({ command: 'add', topic: 'mail', body: 1 })));
  assert.equal((await queue.client.popMany('mail', 200)).length, 130);
  assert.equal(spanOf('receive').links.length, 128);
  assert.equal(spanOf('receive').droppedLinksCount, 0);
});

test('a finish, release or bury of the client is a span in the current one', async () => {
  for (const id of ['a', 'b', 'c']) await queue.client.add('mail', {}, { id });
  const [a, b, c] = await queue.client.popMany('mail', 3);
  await under({}, async () => {
    await queue.client.touch(a);
    await queue.client.finish(a);
    await queue.client.release(b.id, { lease: b.lease });
    await queue.client.bury(c);
    await assert.rejects(queue.client.finish('none'), NotFoundError);
    await queue.client.delete('b');
  });
  const done = spans('settle');
  assert.deepEqual(done.map(({ name }) => name), ['settle mail', 'settle', 'settle mail', 'settle']);
  assert.deepEqual(done.map(({ attributes }) => attributes['messaging.operation.name']), ['finish', 'release', 'bury', 'finish']);
  assert.deepEqual(done.map(idOf), ['a', 'b', 'c', 'none']);
  assert.deepEqual(done.map((span) => failureOf(span)?.[0]), [undefined, undefined, undefined, 'NOT_FOUND']);
  assert.ok(done.every((span) => span.kind === SpanKind.CLIENT && parentOf(span) === PARENT));
});

test('a handler runs in a span of the trace of its add, which includes what it does', async () => {
  await under({}, () => queue.client.add('mail', {}, { id: 'a', headers: { traceparent: PARENT, tracestate: 'a=b' } }));
  await queue.client.add('mail', {}, { id: 'b' });
  const added = await headersOf('b');
  const seen = [];
  const active = async (job) => {
    await new Promise(setImmediate);
    seen.push([job.id, trace.getActiveSpan().spanContext().spanId]);
  };
  await work('mail', async (job) => {
    await active(job);
    if (job.id === 'a') await queue.client.add('next', {}, { id: 'n' });
  }, 2, async (job, next) => { await active(job); await next(); await active(job); });
  const [one, other] = spans('process').sort((first, second) => (idOf(first) < idOf(second) ? -1 : 1));
  assert.deepEqual([one.name, one.kind, parentOf(one), linksOf(one)], ['process mail', SpanKind.CONSUMER, PARENT, [PARENT]]);
  assert.equal(one.spanContext().traceState.serialize(), 'a=b');
  assert.deepEqual(one.attributes, {
    'messaging.system': 'jobqueue',
    'messaging.operation.name': 'process',
    'messaging.operation.type': 'process',
    'messaging.destination.name': 'mail',
    'messaging.message.id': 'a',
    'messaging.jobqueue.attempt': 1,
  });
  assert.deepEqual([eventsOf(one), failureOf(one)], [[], null]);
  for (const span of [one, other]) {
    const { spanId } = span.spanContext();
    const id = idOf(span);
    assert.deepEqual(seen.filter(([of]) => of === id), Array(3).fill([id, spanId]));
    const end = spans('settle').find((each) => idOf(each) === id);
    assert.deepEqual([end.name, end.kind, parentOf(end)], ['settle mail', SpanKind.CLIENT, traceparent(span)]);
    const ended = exporter.getFinishedSpans();
    assert.ok(ended.indexOf(end) < ended.indexOf(span)); // the process span ends once the end is answered
  }
  assert.equal(parentOf(other), added.traceparent);
  const nested = spans('send').find(({ name }) => name === 'send next');
  assert.equal(parentOf(nested), traceparent(one));
  assert.equal((await headersOf('n')).traceparent, traceparent(nested));
});

test('an empty tracestate of a job is none, and what its handler adds carries on', async () => {
  await queue.client.add('mail', {}, { headers: { traceparent: PARENT, tracestate: '' } });
  await work('mail', async () => { await queue.client.add('next', {}, { id: 'n' }); }, 1);
  const nested = spans('send').find(({ name }) => name === 'send next');
  assert.deepEqual(await headersOf('n'), { traceparent: traceparent(nested) });
});

test('the polls of a worker are spans of their own, those that go with the ends of jobs too', async () => {
  for (const id of ['a', 'b']) await queue.client.add('mail', {}, { id });
  const worker = new Worker(queue.url, { logger: QUIET, concurrency: 1, max_jobs: 2 });
  worker.job('mail', () => {});
  await worker.run();
  const sent = spans('send').map(traceparent);
  assert.deepEqual(spans('receive').map((span) => [span.name, parentOf(span), linksOf(span)]), [
    ['receive mail', undefined, [sent[0]]], ['receive mail', undefined, [sent[1]]],
  ]);
  assert.ok(spans('receive').every(({ attributes }) => attributes['messaging.batch.message_count'] === 1));
  assert.deepEqual(spans('process').map(parentOf), sent);
});

test('only a valid context in the headers of a job is a parent', async () => {
  const valid = { 'cc-1': `cc-${TRACE}-${SPAN}-01-more`, plain: PARENT };
  const invalid = {
    long: `${PARENT}-more`, version: `ff-${TRACE}-${SPAN}-01`, zero: `00-${'0'.repeat(32)}-${SPAN}-01`,
    upper: PARENT.toUpperCase(), no: '',
  };
  for (const [id, text] of Object.entries({ ...valid, ...invalid })) {
    await queue.client.add('mail', {}, { id, headers: { traceparent: text } });
  }
  await work('mail', () => {}, 7);
  const found = spans('process').filter((span) => parentOf(span) === PARENT && linksOf(span).length === 1);
  assert.deepEqual(found.map(idOf).sort(), Object.keys(valid).sort());
  assert.equal(spans('process').filter((span) => !parentOf(span) && span.links.length === 0).length, 5);
});

test('a handler that fails is an error, its next delivery is a redelivery, and its last one a dead letter', async () => {
  class ShopError extends Error {}
  await queue.client.add('mail', {}, { id: 'a', tries: 2, backoff: [] });
  await work('mail', () => { throw new ShopError('no shop'); }, 2);
  const [first, last] = spans('process');
  for (const span of [first, last]) {
    assert.deepEqual(failureOf(span), ['ShopError', 'no shop']);
    assert.equal(parentOf(span), traceparent(spanOf('send')));
    const exception = span.events.find(({ name }) => name === 'exception').attributes;
    assert.deepEqual([exception['exception.type'], exception['exception.message']], ['ShopError', 'no shop']);
    assert.match(exception['exception.stacktrace'], /traces\.test\.js/);
  }
  const named = (span) => eventsOf(span).filter(([name]) => name !== 'exception');
  assert.deepEqual(named(first), []);
  assert.deepEqual(named(last), [
    ['jobqueue.redelivery', { 'messaging.jobqueue.attempt': 2 }],
    ['jobqueue.dead_letter', { reason: 'ShopError: no shop' }],
  ]);
  assert.deepEqual(spans('settle').map(({ attributes }) => attributes['messaging.operation.name']), ['release', 'release']);
  assert.deepEqual(spans('settle').map(failureOf), [null, null]);
});

test('a job that is released or buried is no error, and whatever is thrown is told', async () => {
  const hostile = Object.defineProperty(new Error(), 'message', { get() { throw new Error('no message'); } });
  const thrown = {
    bury: new Bury('no order'), silent: new Bury(), retry: new Retry({ after: 60 }), text: 'no disk', nothing: undefined, hostile,
  };
  for (const id of Object.keys(thrown)) await queue.client.add('mail', {}, { id });
  await work('mail', (job) => { throw thrown[job.id]; }, 6);
  const told = Object.fromEntries(spans('process').map((span) => [
    idOf(span),
    [failureOf(span), eventsOf(span).map(([name, { reason }]) => `${name} ${reason}`)],
  ]));
  assert.deepEqual(told, {
    bury: [null, ['jobqueue.dead_letter no order']],
    silent: [null, ['jobqueue.dead_letter undefined']],
    retry: [null, []],
    text: [['_OTHER', "'no disk'"], ['exception undefined']],
    nothing: [['_OTHER', 'undefined'], ['exception undefined']],
    hostile: [['_OTHER', 'an error that cannot be shown'], ['exception undefined']],
  });
});

test('an HTTP request of the client is made in the span of its call, one of a worker in none', async (t) => {
  const { request } = http;
  const during = [];
  t.mock.method(http, 'request', (...given) => { // as an instrumentation of HTTP does
    during.push(trace.getActiveSpan()?.spanContext().spanId);
    return request(...given);
  });
  await queue.client.batch([{ command: 'add', topic: 'mail', body: 1 }]);
  await queue.client.add('mail', {});
  await queue.client.finish(await queue.client.pop('mail'));
  const [batch, add, finish] = [...spans('send'), ...spans('settle')].map((span) => span.spanContext().spanId);
  assert.deepEqual(during.splice(0), [batch, add, undefined, finish]);
  await work('mail', () => {});
  assert.ok(during.length > 1 && during.every((span) => span === undefined));
});

test('a job whose delivery did not count as a try is redelivered all the same', async () => {
  await queue.client.add('mail', {}, { id: 'a' });
  const job = await queue.client.pop('mail');
  await queue.client.release(job, { delay: 0, attempt: false });
  await work('mail', () => {});
  assert.deepEqual(eventsOf(spanOf('process')), [['jobqueue.redelivery', { 'messaging.jobqueue.attempt': 1 }]]);
});

test('a later attempt is a redelivery, even if an older service does not tell since when the job is ready', async (t) => {
  const job = { id: 'a', topic: 'mail', value: 1, lease: 1, attempt: 2, tries: 16, due: 0, ttr: 0, headers: null };
  const { url } = await proxied(t, { success: true, jobs: [job] });
  const worker = new Worker(url, { logger: QUIET, max_jobs: 1 });
  worker.job('mail', () => {});
  await worker.run();
  assert.deepEqual(eventsOf(spanOf('process')), [['jobqueue.redelivery', { 'messaging.jobqueue.attempt': 2 }]]);
});

test('a lost job has an event', async () => {
  await queue.client.add('mail', {}, { id: 'a' });
  await work('mail', (job) => queue.client.delete(job.id));
  assert.deepEqual(eventsOf(spanOf('process')), [['jobqueue.lost', { reason: 'deleted' }]]);
  assert.equal(failureOf(spanOf('process')), null);
  assert.equal(failureOf(spanOf('settle'))[0], 'NOT_FOUND');
});

const hangs = () => new Promise(() => {});
const givesUp = (_, { signal }) => new Promise((_resolve, reject) => {
  signal.addEventListener('abort', () => reject(signal.reason));
});

for (const [handler, ttr] of [[hangs, 60], [hangs, 0], [givesUp, 60]]) {
  test(`a handler that does not end in time loses its job, and its span ends: ${handler.name}, ttr ${ttr}`, async () => {
    await queue.client.add('mail', {}, { id: 'a', ttr, tries: 1 });
    const worker = new Worker(queue.url, { logger: QUIET, grace_s: 0 });
    worker.job('mail', (...given) => {
      worker.stop();
      return handler(...given);
    });
    assert.equal(await worker.run(), false);
    const dead = ['jobqueue.dead_letter', { reason: 'stopping' }];
    assert.deepEqual(eventsOf(spanOf('process')), [['jobqueue.lost', { reason: 'stopping' }], ...(ttr ? [dead] : [])]);
    assert.deepEqual(spans('settle').map(parentOf), ttr ? [traceparent(spanOf('process'))] : []);
  });
}

test('a drain in a test has the spans of a worker', async () => {
  await queue.client.add('mail', {}, { id: 'a', tries: 1 });
  await queue.client.add('mail', {}, { id: 'b' });
  const worker = new Worker('http://production.invalid');
  worker.job('mail', async (job) => {
    await queue.client.add('next', {});
    if (job.id === 'a') throw new RangeError('no shop');
    await queue.client.delete(job.id);
  });
  await queue.drain(worker, { raise_errors: false });
  const [a, b] = spans('process');
  assert.deepEqual(failureOf(a), ['RangeError', 'no shop']);
  assert.deepEqual(eventsOf(a).at(-1), ['jobqueue.dead_letter', { reason: 'RangeError: no shop' }]);
  assert.deepEqual(eventsOf(b), [['jobqueue.lost', { reason: 'deleted' }]]);
  assert.deepEqual(spans('settle').map(parentOf), [a, b].map(traceparent));
  assert.deepEqual(spans('send').filter(({ name }) => name === 'send next').map(parentOf), [a, b].map(traceparent));
});

test('a row of an outbox has the current context by the same rules, and makes no span', async () => {
  const written = [];
  const connection = { query: async (_, values) => written.push(JSON.parse(values[5])), getTypeParser() {} }; // as of pg
  const outbox = new Outbox();
  await outbox.add(connection, 'outbox', {});
  await under({ tracestate: 'a=1', flags: 0 }, async () => {
    await outbox.add(connection, 'outbox', {}, { headers: { shop: '7' }, tries: 2 });
    await outbox.add(connection, 'outbox', {}, { headers: { TraceParent: 'own' } });
    await outbox.update(connection, 'outbox:1', { priority: 1 });
    await outbox.delete(connection, 'outbox:1');
  });
  assert.deepEqual(written, [
    null,
    { headers: { shop: '7', traceparent: `00-${TRACE}-${SPAN}-00`, tracestate: 'a=1' }, tries: 2 },
    { headers: { TraceParent: 'own' } },
    { priority: 1 },
    null,
  ]);
  assert.deepEqual(exporter.getFinishedSpans(), []);
});
