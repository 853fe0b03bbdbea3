/**
 * The worker of the Node client for the test of gaps:
 *
 *     node worker.mjs '["http://127.0.0.1:8001", "http://127.0.0.1:8002"]' TOPIC
 *
 * For each job that it receives, it prints the time, in seconds of the monotonic clock (CLOCK_MONOTONIC), and the job's
 * id. Its log goes to standard error. SIGTERM stops it.
 */
import { Worker } from '../../../clients/node/src/index.js';

const [urls, topic] = process.argv.slice(2);
const worker = new Worker({ urls: JSON.parse(urls) });
worker.job(topic, (job) => {
  process.stdout.write(`${(Number(process.hrtime.bigint()) / 1e9).toFixed(6)} ${job.id}\n`);
});
process.exit((await worker.run()) ? 0 : 1);
