/** A test kit: a queue in memory, whose clock stands still until a test advances it. See docs/testing.md. */
import { after, before, beforeEach } from 'node:test';

import { Queue } from './queue.js';
import { TestService } from './service.js';

export { Queue, TestService };

/**
 * A queue for the tests of a file, or of the `describe` in which this is called: it exists from their beginning until
 * after the last test, and before each test it is empty and at the real time. For node:test; with other test runners,
 * see TestService and Queue.
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
