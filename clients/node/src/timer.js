/** Timers accept at most 24.8 days; a longer one would fire at once. */

const LONGEST_MS = 2 ** 31 - 1;

/** A timer's duration in ms, capped at the longest that a timer accepts. */
export function timerMs(ms) {
  return Math.min(ms, LONGEST_MS);
}
