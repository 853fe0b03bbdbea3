/** Run by `npm run check`: values that JSON cannot represent are refused; all others are sent as JSON.stringify has them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { encode } from '../src/json.js';

const REFUSED = {
  NaN, Infinity, 'a function': () => 1, 'a symbol': Symbol('x'), 'a BigInt': 1n,
  'half a pair': '\ud800', 'the other half': 'x\udc00', 'half a pair behind a backslash': '\\\ud83d',
  'half a pair in a key': { '\ud800': 1 }, 'a Buffer': Buffer.from('x'), bytes: new Uint8Array(2), 'a Map': new Map(),
  'a Set': new Set(), 'a Promise': Promise.resolve(), 'an Error': new Error('x'), 'an invalid Date': new Date(NaN),
};

const TAKEN = [
  null, false, 0, 12.5, '', 'ü😀', '\u2028\u2029', '\u0000\u001f\u007f', '"\\/</script>', '\\ud800', '\\\\udc00', {}, [],
  { a: [{}, [], { b: null }] }, new Date(0), new (class Order { number = 1; })(), Object.create(null),
];

for (const [name, value] of Object.entries(REFUSED)) {
  test(`${name} is refused, wherever it stands`, () => {
    for (const body of [value, [value], { a: [{ b: value }] }]) assert.throws(() => encode(body), TypeError);
  });
}

test('what is JSON is sent as such', () => {
  for (const value of TAKEN) assert.equal(encode(value), JSON.stringify(value));
});

test('undefined is dropped from an object, and null in an array, as JSON.stringify has it', () => {
  assert.equal(encode({ order: 1, coupon: undefined, items: [undefined, { gift: undefined }] }), '{"order":1,"items":[null,{}]}');
  assert.equal(encode([new Array(1)]), '[[null]]');
});

test('what contains itself is refused', () => {
  const body = {};
  body.self = body;
  assert.throws(() => encode({ body }), TypeError);
});
