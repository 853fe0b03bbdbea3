/** The Node client, as bare.py says. */
import { Client, Worker } from '../../clients/node/src/index.js';

const BATCH = 100;
const [url, kind, amount, topic] = process.argv.slice(2);
const count = Number(amount);

const id = (number) => `${topic}:${String(number).padStart(19 - topic.length, '0')}`;
const body = 'x'.repeat(98);
let begun;

if (kind === 'work') {
  let done = 0;
  const on_event = (event) => {
    if (event === 'job.finished' && ++done === count) worker.stop();
  };
  const worker = new Worker({ url, on_event });
  worker.job(topic, async () => {});
  begun = performance.now();
  await worker.run();
} else {
  const client = new Client({ url });
  await client.stats(); // the connection stands
  begun = performance.now();
  if (kind === 'batch') {
    for (let start = 0; start < count; start += BATCH) {
      const numbers = Array.from({ length: BATCH }, (_, index) => start + index);
      await client.batch(numbers.map((number) => ({ command: 'add', topic, id: id(number), delay: 3600, body })));
    }
  } else {
    for (let number = 0; number < count; number += 1) await client.add(topic, body, { id: id(number), delay: 3600 });
  }
  client.close();
}
console.log(JSON.stringify({ seconds: (performance.now() - begun) / 1000 }));
