/** Run by tests/clients/test_node_traces.py: the API of OpenTelemetry without an SDK, and beside another copy of itself. */
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';

import { useQueue } from 'jobqueue-client/testing';

const queue = useQueue();
const require = createRequire(import.meta.url);

/** The API, loaded once more: as another copy of the package would be. */
function anotherApi() {
  const own = Object.keys(require.cache).filter((file) => file.includes('/@opentelemetry/api/'));
  assert.ok(own.length > 0); // the client has loaded the first copy
  for (const file of own) delete require.cache[file];
  return require('@opentelemetry/api');
}

test('without an SDK nothing is sent, and one that is registered later, by another copy of the API, is found', async () => {
  const { id } = await queue.client.add('before', {});
  assert.equal((await queue.client.get(id)).headers ?? null, null);
  assert.equal((await queue.client.pop('before')).headers, null);

  const { trace } = anotherApi();
  const { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } = require('@opentelemetry/sdk-trace-base');
  const exporter = new InMemorySpanExporter();
  trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
  await queue.client.add('after', {});
  const [span] = exporter.getFinishedSpans();
  const { name, version } = require('./node_modules/jobqueue-client/package.json');
  assert.deepEqual([span.name, span.instrumentationScope.name, span.instrumentationScope.version], ['send after', name, version]);
  assert.equal((await queue.client.pop('after')).headers.traceparent.split('-')[2], span.spanContext().spanId);
});
