/** A test kit: a queue in memory, whose clock stands still until a test advances it. See docs/testing.md. */
import { after, before, beforeEach } from 'node:test';

import { Queue } from './queue.js';
import { TestService } from './service.js';

export { Queue, TestService };

/**
 * A queue for the tests of a file, or of the `describe` in which this is called: it is there once they begin, empty and at
 * the real time before each of them, and gone after the last. For node:test; for others, see TestService and Queue.
 * @returns {Queue}
 */
export function useQueue() {
  const queue = new Queue();
  const service = new TestService();
  before(async () => queue.connect(process.env.JOBQUEUE_TEST_URL ?? await service.start()));
  beforeEach(() => queue.reset());
  after(async () => {
    queue.close();
    await service.stop();
  });
  return queue;
}
