/** The token that a client sends. It is kept where neither util.inspect nor JSON.stringify finds it. */
import { readFileSync } from 'node:fs';

const OURS = /^jqt_[0-9A-Za-z]{57}$/;
const CHECKSUM_LENGTH = 6;
const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const WHAT = { option: 'token', file: 'the token in token_file', environment: 'JOBQUEUE_TOKEN' };

export class Token {
  #text;
  #file;

  /**
   * Reads the token from the option `token`, the file `token_file`, or JOBQUEUE_TOKEN.
   * @param {boolean} isTaken true if the address or the headers have credentials: then JOBQUEUE_TOKEN is not used
   * @throws {TypeError} for a token that cannot be valid, or an unreadable file; the error never shows the token
   */
  constructor({ token, token_file }, isTaken, environment = process.env) {
    const given = [token, token_file].filter((each) => each != null).length;
    if (given > 1) throw new TypeError('give token or token_file, not both');
    if (given > 0 && isTaken) throw new TypeError('give token, or credentials in the url or the headers, not both');
    this.#file = token_file ?? null;
    if (token != null) this.#text = checked(token, WHAT.option);
    else if (token_file != null) this.#text = read(token_file);
    else this.#text = isTaken || !environment.JOBQUEUE_TOKEN ? null : checked(environment.JOBQUEUE_TOKEN, WHAT.environment);
  }

  /** The value of the header Authorization, or null. */
  get shown() {
    return this.#text === null ? null : `Bearer ${this.#text}`;
  }

  /**
   * Whether the token now differs from the one sent in a request that was refused; reads the file again.
   * @param {string|null} refused the header of that request
   */
  isReplaced(refused) {
    if (this.shown === refused && this.#file !== null) this.#readAgain();
    return this.shown !== refused;
  }

  /** A file that is missing, or only half written, changes nothing. */
  #readAgain() {
    try {
      this.#text = read(this.#file);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
    }
  }
}

function read(file) {
  let text;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    throw new TypeError(`token_file: ${cause.message}`, { cause });
  }
  return checked(text.trim(), WHAT.file);
}

/** Returns a valid token. One that begins like the service's tokens must have their form and a correct checksum. */
function checked(text, what) {
  if (typeof text !== 'string' || !/^[!-~]+$/.test(text)) {
    throw new TypeError(`${what} must be printable ASCII without spaces`);
  }
  if (text.startsWith('jqt_') && !(OURS.test(text) && hasChecksum(text))) {
    throw new TypeError(`${what} has a typing error: its form or its checksum is wrong`);
  }
  return text;
}

function hasChecksum(text) {
  const place = text.length - CHECKSUM_LENGTH;
  return base62(crc32(text.slice(0, place))) === text.slice(place);
}

/** Most significant digit first. */
function base62(number) {
  let digits = '';
  for (let left = number; digits.length < CHECKSUM_LENGTH; left = Math.floor(left / 62)) digits = DIGITS[left % 62] + digits;
  return digits;
}

/** The CRC-32 of ASCII text, like zlib.crc32, which Node has only since 20.15. */
function crc32(text) {
  let sum = 0xffffffff;
  for (const byte of Buffer.from(text)) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return (sum ^ 0xffffffff) >>> 0;
}
