/** Run by `npm run check`: the times that an outbox turns into unix seconds are those that the service reads itself. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { unixSeconds } from '../src/fields.js';

const NINE = 1795424400; // 2026-11-23T09:00:00Z

const TAKEN = {
  '2026-11-23T09:00:00Z': NINE, '2026-11-23t09:00:00z': NINE, '2026-11-23 10:00:00+01:00': NINE,
  '2026-11-23T00:30:00.5-08:30': NINE + 0.5, '2026-11-23T09:00:00.123456789Z': NINE + 0.123, '2028-02-29T00:00:00Z': 1835395200,
};

const REFUSED = [
  '', 'tomorrow', '2026-11-23', '2026-11-23T09:00:00', '2026-11-23T09:00Z', '2026-11-23T09:00:00,5Z', ' 2026-11-23T09:00:00Z',
  '2026-11-23T09:00:00Z\n', '2026-11-23T09:00:00+01', '2026-11-23T09:00:00+24:00', '2026-02-29T00:00:00Z', '2026-13-01T00:00:00Z',
  '2026-11-23T24:00:00Z', '2026-11-23T09:00:60Z', '1969-12-31T23:59:59Z', '1795424400', -1, NaN, true, {}, [1],
];

test('unix seconds, and RFC 3339 with an offset', () => {
  for (const [text, seconds] of Object.entries(TAKEN)) assert.equal(unixSeconds(text), seconds, text);
  for (const seconds of [0, 12.5, NINE]) assert.equal(unixSeconds(seconds), seconds);
});

test('what is no time is refused, with one that would do', () => {
  for (const at of REFUSED) assert.throws(() => unixSeconds(at), { name: 'TypeError', message: /at must be .*\+01:00, not / }, at);
});
