/** The log of a worker: lines of JSON on standard error, or any logger with `info` and `error`. */
import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';

const OURS = new URL('..', import.meta.url).href; // src/

/**
 * A line in the form that loggers accept: an object with `message`. pino and winston write its fields; a console, which
 * would spread the object over several lines, writes its JSON.
 */
class Line {
  constructor(fields) {
    Object.assign(this, fields);
  }

  [inspect.custom]() {
    return JSON.stringify(this);
  }
}

/** The default logger. */
const STANDARD_ERROR = {
  info: (line) => write('info', line),
  error: (line) => write('error', line),
};

function write(level, line) {
  process.stderr.write(`${JSON.stringify({ time: new Date().toISOString(), level, ...line })}\n`);
}

export class Log {
  #logger;

  constructor(logger = STANDARD_ERROR) {
    this.#logger = logger;
  }

  info(message, fields) {
    this.#write('info', { message, ...fields });
  }

  /** @param {unknown} [error] what was thrown: the line shows where; its class and message are in the fields */
  error(message, fields, error) {
    this.#write('error', { message, ...fields, ...placeOf(error) });
  }

  /** A logger that fails must not end a job, or the worker. */
  #write(level, fields) {
    try {
      this.#logger[level](new Line(fields));
    } catch (error) {
      STANDARD_ERROR.error({ message: 'logger.failed', reason: String(error) });
    }
  }
}

/** The first frame of an error's stack that is neither ours nor Node's: `{at: "/shop/orders.js:12:5"}`, or nothing. */
function placeOf(error) {
  const frames = framesOf(error).map((frame) => /(?:\(|at )([^()]+:\d+:\d+)\)?$/.exec(frame)?.[1]);
  const at = frames.find((frame) => frame && !frame.startsWith('node:') && !frame.startsWith(OURS));
  return at && { at: at.startsWith('file:') ? pathOf(at) : at };
}

function framesOf(error) {
  try {
    return error.stack.split('\n').filter((line) => /^\s+at /.test(line));
  } catch {
    return []; // not an error, or one that cannot be shown
  }
}

function pathOf(frame) {
  const [, file, place] = /^(.*?)(:\d+:\d+)$/.exec(frame);
  return fileURLToPath(file) + place;
}
