<?php

declare(strict_types=1);

namespace JobQueue\Client\Testing;

use RuntimeException;

/** A test service in a process of its own: `jobqueue serve --test`, from the PATH. */
final class Service
{
    private const START_S = 30.0;
    private const HINT = 'there is no `jobqueue` to run: install the service where the tests run, or start'
        . ' `jobqueue serve --test` elsewhere and set JOBQUEUE_TEST_URL to its address';
    /** The exit code of a process whose program does not exist. */
    private const NOT_FOUND = 127;

    /** The address at which the service listens. */
    public readonly string $url;

    /** @var resource|null */
    private mixed $process;
    private readonly string $log;

    /** @throws RuntimeException with the service's log if it does not start */
    public function __construct()
    {
        $this->log = (string) tempnam(sys_get_temp_dir(), 'jobqueue-test-');
        $command = ['jobqueue', 'serve', '--test', '--log-format', 'json'];
        $files = [['file', '/dev/null', 'r'], ['file', '/dev/null', 'w'], ['file', $this->log, 'a']];
        $environment = array_diff_key(getenv(), ['JOBQUEUE_TEST_URL' => 0]); // this is not a setting of the service
        $process = @proc_open($command, $files, $pipes, env_vars: $environment);
        if ($process === false) {
            throw new RuntimeException(self::HINT);
        }
        $this->process = $process;
        $owner = getmypid();
        register_shutdown_function(fn () => getmypid() !== $owner || $this->stop()); // not in a fork of the tests
        $this->url = $this->started();
    }

    /** Stop the service; its data is gone. */
    public function stop(): void
    {
        [$process, $this->process] = [$this->process, null];
        if ($process !== null) {
            proc_terminate($process);
            proc_close($process);
            @unlink($this->log);
        }
    }

    /** Waits until the service listens; returns its address. */
    private function started(): string
    {
        $end = microtime(true) + self::START_S;
        while (microtime(true) < $end && ($status = proc_get_status($this->process))['running']) {
            foreach (file($this->log) ?: [] as $line) {
                $event = json_decode($line, true);
                if (($event['event'] ?? null) === 'service.started') {
                    return $event['url'];
                }
            }
            usleep(20_000);
        }
        $log = (string) file_get_contents($this->log);
        $this->stop();
        $missing = ($status['exitcode'] ?? null) === self::NOT_FOUND;
        throw new RuntimeException($missing ? self::HINT : "`jobqueue serve --test` did not start:\n$log");
    }
}
