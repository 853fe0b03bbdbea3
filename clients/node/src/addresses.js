/** The addresses of the service: chooses one for each request, and skips an address for a while after a failure. */
import { JobQueueError, UnreachableError, subjectOf } from './errors.js';
import { Transport } from './http.js';
import { encode } from './json.js';
import { addressed, checkLimits } from './options.js';
import { readReply } from './reply.js';
import { isAway } from './retry.js';
import { tlsOf } from './tls.js';
import { Token } from './token.js';

const OUT_MS = 5_000; // doubled with each failure in a row
const LONGEST_OUT_MS = 60_000;

/** Turns the arguments of a constructor into its addresses and its other options. */
export function connected(first, second) {
  const { urls, timeout_s = 10, connect_timeout_s = 3, headers = {}, ...rest } = addressed(first, second);
  const limits = { timeout_s, connect_timeout_s, headers };
  checkLimits(limits);
  const { token, token_file, ca_file, cert_file, key_file, ...options } = rest;
  const access = {
    token: new Token({ token, token_file }, haveCredentials(urls, headers)),
    tls: tlsOf({ ca_file, cert_file, key_file }, urls),
  };
  return { addresses: new Addresses(urls, { ...limits, ...access }), options };
}

function haveCredentials(urls, headers) {
  return urls.some((url) => url.username || url.password)
    || Object.keys(headers).some((name) => name.toLowerCase() === 'authorization');
}

class Addresses {
  #all;

  /** @param {URL[]} urls used in a random order, so that many clients spread their load */
  constructor(urls, settings) {
    this.#all = shuffled(urls).map((url) => new Address(url, settings));
  }

  /** The route of a request: for its first attempt and its retries. */
  route() {
    return new Route(this.#all);
  }

  /** Closes the connections; requests in flight fail. */
  close() {
    for (const address of this.#all) address.close();
  }
}

/** The attempts of one request, each at the best address: preferably one that is neither skipped nor already tried. */
class Route {
  #all;
  #attempts = 0;
  #tried = new Map(); // address -> the number of its last attempt

  constructor(all) {
    this.#all = all;
  }

  /**
   * Makes one attempt. Returns the answer to a command, or the answers, including refusals, to an array of commands.
   * @throws {JobQueueError}
   */
  async ask(asked, signal) {
    const address = this.#next();
    this.#tried.set(address, ++this.#attempts);
    return address.ask(asked, signal);
  }

  /** Whether the next attempt needs no pause, as the address was at fault and another one has not been tried yet. */
  hasAnother(error) {
    return isAway(error) && this.#tried.size < this.#all.length;
  }

  #next() {
    const now = performance.now();
    const rank = (address) => [address.outFor(now) > 0, this.#tried.get(address) ?? 0, address.outFor(now)];
    return this.#all.reduce((best, each) => (isLess(rank(each), rank(best)) ? each : best));
  }
}

/** One address, and whether it is skipped. */
class Address {
  #transport;
  #failures = 0; // in a row
  #failed_at = -Infinity;
  #out_until = 0;

  constructor(url, settings) {
    this.#transport = new Transport({ url, ...settings });
  }

  async ask(asked, signal) {
    const begun = performance.now();
    const wait_s = (Array.isArray(asked) ? asked.at(-1) : asked).wait;
    const longer_s = wait_s > 0 ? wait_s : 0; // the service refuses an invalid one, with a message
    const text = encode(asked);
    try {
      const answer = readReply(await this.#transport.post(text, longer_s, signal), asked);
      this.#note([answer].flat().some(isAway), begun);
      return answer;
    } catch (error) {
      if (!(error instanceof JobQueueError)) throw error;
      this.#note(isAway(error), begun);
      throw error instanceof UnreachableError ? new UnreachableError(subjectOf(asked) + error.message, error) : error;
    }
  }

  /** How much longer the address is skipped, in ms. */
  outFor(now) {
    return Math.max(0, this.#out_until - now);
  }

  close() {
    this.#transport.close();
  }

  /** Notes a result, unless the request began before the last failure: all requests in flight fail together. */
  #note(away, begun) {
    if (begun <= this.#failed_at) return;
    this.#failures = away ? this.#failures + 1 : 0;
    if (!away) this.#out_until = 0;
    else this.#leaveOut();
  }

  #leaveOut() {
    this.#failed_at = performance.now();
    this.#out_until = this.#failed_at + Math.min(OUT_MS * 2 ** (this.#failures - 1), LONGEST_OUT_MS);
  }
}

/** Whether a list of numbers comes before another one of the same length. */
function isLess(one, other) {
  const place = one.findIndex((value, at) => value !== other[at]);
  return place >= 0 && one[place] < other[place];
}

function shuffled(list) {
  return list.map((each) => [Math.random(), each]).sort(([one], [other]) => one - other).map(([, each]) => each);
}
