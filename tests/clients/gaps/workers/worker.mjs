/** As worker.py, in Node. */
import { Worker } from '../../../../clients/node/src/index.js';

const [urls, topic] = [JSON.parse(process.argv[2]), process.argv[3]];
const worker = new Worker({ urls, concurrency: 4 });
worker.job(topic, ({ id, attempt }) => {
  process.stdout.write(`${JSON.stringify({ id, attempt, at: Number(process.hrtime.bigint()) / 1e9 })}\n`);
});
await worker.run();
