/** Timers take 24.8 days; one of more than that would fire at once. */

const LONGEST_MS = 2 ** 31 - 1;

/** The time of a timer: so many ms, or as long as it can be. */
export function timerMs(ms) {
  return Math.min(ms, LONGEST_MS);
}
