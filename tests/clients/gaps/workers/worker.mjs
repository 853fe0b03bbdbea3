/** As worker.py, in Node. */
import { Worker } from '../../../../clients/node/src/index.js';

const [urls, topic, ca_file] = [JSON.parse(process.argv[2]), ...process.argv.slice(3)];
const worker = new Worker({ urls, concurrency: 4, ...(ca_file ? { ca_file } : {}) });
worker.job(topic, ({ id, attempt, due, lease }) => {
  process.stdout.write(`${JSON.stringify({ id, attempt, due, lease, at: Number(process.hrtime.bigint()) / 1e9 })}\n`);
});
await worker.run();
