/** HTTP requests over keep-alive connections. Knows no commands and retries nothing; a failure says how far it got. */
import { setMaxListeners } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import { setImmediate as loopTurn } from 'node:timers/promises';

import { UnreachableError } from './errors.js';
import { timerMs } from './timer.js';
import { SPEAKS_TLS, speaksTls, tlsTrouble } from './tls.js';

const IDLE_MS = 10_000;

/** The connections to one address. */
export class Transport {
  #module;
  #agent;
  #target;
  #url;
  #address;
  #isKnown; // whether an answer has shown that the scheme of the URL is right
  #headers;
  #token;
  #timeout_ms;
  #connect_timeout_ms;

  /** @param {{url: URL, token: Token, tls: object}} options already validated */
  constructor({ url, timeout_s, connect_timeout_s, headers, token, tls }) {
    this.#module = url.protocol === 'https:' ? https : http;
    this.#agent = new this.#module.Agent({ keepAlive: true, timeout: IDLE_MS, ...(this.#module === https && tls) });
    // timeout 0: the agent's time-out is for idle connections only; requests have their own, below.
    this.#target = { ...targetOf(url), method: 'POST', agent: this.#agent, timeout: 0 };
    this.#address = url;
    this.#isKnown = this.#module === https;
    this.#url = `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
    this.#headers = { 'Content-Type': 'application/json', ...headers };
    this.#token = token;
    this.#timeout_ms = timeout_s * 1000;
    this.#connect_timeout_ms = connect_timeout_s * 1000;
  }

  /**
   * Sends a request and reads its reply: `{status, retry_after, text}`. If the token is refused, and its file now holds
   * another one, the request is sent again with the new token.
   * @param {string} text the body
   * @param {number} wait_s seconds for which the service may wait before it answers
   * @param {AbortSignal} [signal] an abort closes the connection; the promise is rejected with the signal's reason
   * @throws {UnreachableError}
   */
  async post(text, wait_s, signal) {
    const shown = this.#token.shown;
    const answer = await this.#posted(text, wait_s, signal, shown);
    return answer.status === 401 && this.#token.isReplaced(shown)
      ? this.#posted(text, wait_s, signal, this.#token.shown)
      : answer;
  }

  async #posted(text, wait_s, signal, authorization) {
    // If the caller kept the loop busy, the loop has not yet noticed which idle connections the service has closed. The
    // first turn may only end the current round of the loop; before the second one, it has polled the sockets.
    await loopTurn();
    await loopTurn();
    signal?.throwIfAborted();
    const headers = { ...this.#headers, 'Content-Length': Buffer.byteLength(text) };
    if (authorization !== null) headers.Authorization = authorization;
    const limits = { connect_ms: this.#connect_timeout_ms, answer_ms: this.#timeout_ms + wait_s * 1000 };
    const { failed, ...answer } = await new Promise((resolve, reject) => {
      const request = this.#module.request({ ...this.#target, headers });
      new Exchange(request, limits, signal, resolve, reject);
      request.end(text);
    });
    // Thrown here, not where it happened, so that the stack shows the caller.
    if (failed && await this.#isTls(failed)) {
      throw new UnreachableError(`${this.#url}: ${SPEAKS_TLS}`, { ...failed, maybe_done: false });
    }
    if (failed) throw new UnreachableError(`${this.#url}: ${failed.what}`, failed);
    this.#isKnown = true;
    return answer;
  }

  /** Whether a connection broke because the port expects TLS. */
  async #isTls({ cause, maybe_done }) {
    return maybe_done && cause && !this.#isKnown && speaksTls(this.#address, timerMs(this.#connect_timeout_ms));
  }

  /** Closes the connections; requests in flight fail. */
  close() {
    this.#agent.destroy();
  }
}

/** Where to send commands. (Node 18 mistakes the result of urlToHttpOptions for a URL, and ignores our path.) */
function targetOf(url) {
  return {
    hostname: url.hostname.replace(/^\[|\]$/g, ''), // the brackets of an IPv6 address
    port: url.port,
    path: `${url.pathname.replace(/\/+$/, '')}/command`,
    auth: url.username ? decodeURIComponent(`${url.username}:${url.password}`) : undefined,
  };
}

/** One request. Resolves to its reply or to `{failed}`; only an abort rejects. */
class Exchange {
  #request;
  #limits;
  #signal;
  #resolve;
  #reject;
  #timer;
  #sent = false; // until then, the service cannot have received the request

  constructor(request, limits, signal, resolve, reject) {
    this.#request = request;
    this.#limits = limits;
    this.#signal = signal;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#timer = setTimeout(this.#late, timerMs(limits.connect_ms));
    // Any number of requests may share a signal: each removes its listener, so Node need not warn of a leak.
    if (signal instanceof EventTarget) setMaxListeners(0, signal);
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
    this.#timer = setTimeout(this.#late, timerMs(this.#limits.answer_ms));
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

  #broken = (error) => {
    const where = this.#sent ? 'the connection broke' : 'no connection';
    this.#fail(tlsTrouble(error) ?? `${where}: ${error.message}`, error);
  };

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

/** A Retry-After header in seconds; null if it is missing, or a date, which this service never sends. */
function seconds(header) {
  const value = Number.parseFloat(header);
  return value >= 0 ? value : null;
}
