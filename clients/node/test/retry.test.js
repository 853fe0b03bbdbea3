/** Run by `npm run check`: how long the pauses are. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { pauseBefore } from '../src/retry.js';
import { timerMs } from '../src/timer.js';

const pauses = (repetition, error) => Array.from({ length: 2000 }, () => pauseBefore(repetition, error));

test('a pause is random, up to a bound that doubles, and 2 s at most', () => {
  for (const [repetition, most] of [[1, 100], [2, 200], [5, 1600], [6, 2000], [60, 2000], [2000, 2000]]) {
    const all = pauses(repetition, {});
    assert.ok(Math.min(...all) >= 0 && Math.min(...all) < most / 10);
    assert.ok(Math.max(...all) <= most && Math.max(...all) > (most * 9) / 10);
  }
});

test('a pause is no shorter than the service asked for, and random beyond that', () => {
  for (const [repetition, retry_after, most] of [[1, 3, 3100], [9, 1, 3000]]) {
    const all = pauses(repetition, { retry_after });
    assert.ok(Math.min(...all) >= retry_after * 1000 && Math.max(...all) <= most);
    assert.ok(Math.max(...all) - Math.min(...all) > (most - retry_after * 1000) / 2);
  }
});

test('a pause of many days is one', () => {
  assert.equal(timerMs(5), 5);
  assert.equal(timerMs(Infinity), 2 ** 31 - 1); // a longer one would fire at once
});
