/** Requests over kept connections. It knows no commands and repeats nothing; each failure says how far it came. */
import http from 'node:http';
import https from 'node:https';
import { setImmediate as turn } from 'node:timers/promises';

import { UnreachableError } from './errors.js';
import { checkHeaders, checkSeconds, checkedUrl } from './options.js';
import { timerMs } from './timer.js';

const IDLE_MS = 10_000;

export class Transport {
  #module;
  #agent;
  #target;
  #place;
  #headers;
  #timeout_ms;
  #connect_timeout_ms;

  constructor({ url, timeout_s, connect_timeout_s, headers }) {
    const address = checkedUrl(url);
    checkSeconds('timeout_s', timeout_s, { positive: true });
    checkSeconds('connect_timeout_s', connect_timeout_s, { positive: true });
    checkHeaders(headers);
    this.#module = address.protocol === 'https:' ? https : http;
    this.#agent = new this.#module.Agent({ keepAlive: true, timeout: IDLE_MS });
    // timeout 0: the agent's is for idle connections only, ours are below.
    this.#target = { ...placeOf(address), method: 'POST', agent: this.#agent, timeout: 0 };
    this.#place = address.host;
    this.#headers = { 'Content-Type': 'application/json', ...headers };
    this.#timeout_ms = timeout_s * 1000;
    this.#connect_timeout_ms = connect_timeout_s * 1000;
  }

  /**
   * Send a request, and gather its answer: `{status, retry_after, text}`.
   * @param {string} text what is sent
   * @param {number} wait_s for how long the service may wait before it answers
   * @param {AbortSignal} [signal] closes the connection; the promise is rejected with its reason
   * @throws {UnreachableError}
   */
  async post(text, wait_s, signal) {
    // A caller that kept the loop busy comes before the loop sees which kept connections were closed meanwhile. The
    // first turn may end this round of the loop; before the second it has looked.
    await turn();
    await turn();
    signal?.throwIfAborted();
    const headers = { ...this.#headers, 'Content-Length': Buffer.byteLength(text) };
    const patience = { connect_ms: this.#connect_timeout_ms, answer_ms: this.#timeout_ms + wait_s * 1000 };
    const { failed, ...answer } = await new Promise((resolve, reject) => {
      const request = this.#module.request({ ...this.#target, headers });
      new Exchange(request, patience, signal, resolve, reject);
      request.end(text);
    });
    // Thrown here and not where it happened, so that the error's stack tells who called.
    if (failed) throw new UnreachableError(`${this.#place}: ${failed.what}`, failed);
    return answer;
  }

  /** Closes the connections; requests that are on their way fail. */
  close() {
    this.#agent.destroy();
  }
}

/** Where to send commands. (urlToHttpOptions gives what Node 18 takes for a URL, and ignores our path.) */
function placeOf(address) {
  return {
    hostname: address.hostname.replace(/^\[|\]$/g, ''), // of an IPv6 address
    port: address.port,
    path: `${address.pathname.replace(/\/+$/, '')}/command`,
    auth: address.username ? decodeURIComponent(`${address.username}:${address.password}`) : undefined,
  };
}

/** One request: resolves to its answer or to `failed`; only an abort rejects. */
class Exchange {
  #request;
  #patience;
  #signal;
  #resolve;
  #reject;
  #timer;
  #sent = false; // before that nobody can have got the request

  constructor(request, patience, signal, resolve, reject) {
    this.#request = request;
    this.#patience = patience;
    this.#signal = signal;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#timer = setTimeout(this.#late, timerMs(patience.connect_ms));
    signal?.addEventListener('abort', this.#aborted);
    request.on('socket', this.#given);
    request.on('response', this.#answered);
    request.on('error', this.#broken);
  }

  #given = (socket) => {
    if (this.#request.reusedSocket) this.#connected();
    else socket.once(socket.encrypted ? 'secureConnect' : 'connect', this.#connected);
  };

  #connected = () => {
    this.#sent = true;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#late, timerMs(this.#patience.answer_ms));
  };

  #answered = (response) => {
    let text = '';
    response.setEncoding('utf8');
    response.on('data', (chunk) => { text += chunk; });
    response.on('error', this.#broken);
    response.on('end', () => {
      this.#over();
      this.#resolve({ status: response.statusCode, retry_after: seconds(response.headers['retry-after']), text });
    });
  };

  #late = () => this.#fail(this.#sent ? 'no answer in time' : 'no connection in time');

  #broken = (error) => this.#fail(`${this.#sent ? 'the connection broke' : 'no connection'}: ${error.message}`, error);

  #fail(what, cause) {
    this.#over();
    this.#resolve({ failed: { what, cause, maybe_done: this.#sent } });
    this.#request.destroy();
  }

  #aborted = () => {
    this.#over();
    this.#reject(this.#signal.reason);
    this.#request.destroy();
  };

  #over() {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener('abort', this.#aborted);
  }
}

/** Of a Retry-After header in seconds; null for none, and for a date, which this service does not send. */
function seconds(header) {
  const value = Number.parseFloat(header);
  return value >= 0 ? value : null;
}
