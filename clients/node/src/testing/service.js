/** A test service in a process of its own, for as long as tests need it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

const KEPT_LINES = 20;
const HINT = 'install the service where the tests run and set JOBQUEUE_COMMAND to its program, or start '
  + '`jobqueue serve --test` elsewhere and set JOBQUEUE_TEST_URL to its address';

/** Runs `jobqueue serve --test`: the program in JOBQUEUE_COMMAND, or the one in the PATH. */
export class TestService {
  #child = null;
  #lastLines = [];

  /** Starts the service. Returns its address once it listens. */
  async start() {
    const { JOBQUEUE_COMMAND = 'jobqueue', ...env } = process.env; // the service would mistake it for a setting
    const [program, ...flags] = JOBQUEUE_COMMAND.split(/\s+/);
    const all = [...flags, 'serve', '--test', '--log-format', 'json'];
    this.#child = spawn(program, all, { stdio: ['ignore', 'ignore', 'pipe'], env });
    process.once('exit', this.#kill); // if the test run ends early
    return new Promise((resolve, reject) => {
      this.#child.once('error', (cause) => reject(new Error(`there is no ${program} to run: ${HINT}`, { cause })));
      this.#child.once('close', () => reject(new Error(`the test service ended:\n${this.#lastLines.join('\n')}`)));
      this.#readLog(resolve);
    });
  }

  /** Stops the service; its data is gone. */
  async stop() {
    const child = this.#child;
    this.#child = null;
    process.off('exit', this.#kill);
    if (child === null || child.exitCode !== null || child.pid === undefined) return;
    child.kill('SIGTERM');
    await once(child, 'exit');
  }

  #kill = () => this.#child?.kill('SIGTERM');

  /** Finds the address in the service's log, and reads on, so that the service never has to wait for a reader. */
  #readLog(started) {
    createInterface({ input: this.#child.stderr }).on('line', (line) => {
      this.#lastLines = [...this.#lastLines.slice(1 - KEPT_LINES), line];
      const { event, url } = parsed(line);
      if (event === 'service.started') started(url);
    });
  }
}

function parsed(line) {
  try {
    return JSON.parse(line) ?? {};
  } catch {
    return {};
  }
}
