<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use JobQueue\Client\Clock;
use JobQueue\Client\Http\Exchange;
use JobQueue\Client\Job;

/**
 * The worker's link to its lease keeper: starts it, exchanges messages with it, and restarts it if it dies.
 *
 * @internal
 */
final class LeaseKeeperLink
{
    /** Seconds that a keeper has to end once it is closed. */
    private const CLOSE_S = 1.0;

    /** The keeper ignores these signals: Ctrl-C reaches it too, and it must live as long as the worker. */
    private const IGNORED = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM];

    /** @var resource|null */
    private mixed $socket = null;
    private ?Process $keeper = null;
    /** @var list<mixed>|null the `begin` message of the current job */
    private ?array $begun = null;
    /** @var list<mixed>|null */
    private ?array $grace = null;
    private ?string $lost = null;
    private bool $died = false;
    private bool $abandoned = false;

    public function __construct(private readonly Exchange $exchange, private readonly float $keep_alive_s)
    {
    }

    public static function isPossible(): bool
    {
        return function_exists('pcntl_fork') && function_exists('posix_kill');
    }

    /** @throws \RuntimeException if the system has no room for another process */
    public function start(): void
    {
        $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, STREAM_IPPROTO_IP);
        if ($pair === false) {
            throw new \RuntimeException('cannot create a socket pair for the lease keeper');
        }
        array_map(static fn (mixed $end) => stream_set_blocking($end, false), $pair);
        // These signals are blocked until the keeper ignores them: a signal to both processes at this moment must not
        // end the keeper. And SIGCHLD, because a handler of the program must not reap this child, which it does not
        // expect.
        pcntl_sigprocmask(SIG_BLOCK, [...self::IGNORED, SIGCHLD], $before);
        $isForked = $this->fork(...$pair);
        pcntl_sigprocmask(SIG_SETMASK, $before);
        fclose($pair[1]);
        $pid = $isForked ? (int) fgets($pair[0]) : -pcntl_errno();
        if ($pid <= 0) {
            throw new \RuntimeException('cannot fork the lease keeper: ' . pcntl_strerror(-$pid));
        }
        [$this->socket, $this->keeper] = [$pair[0], Process::of($pid)];
    }

    /**
     * Forks twice: the keeper is not a child of the worker, so that a handler which waits for its children does not
     * wait for the keeper. The child in between writes the keeper's pid, or a negative error number, and has ended when
     * this returns.
     *
     * @param resource $ours
     * @param resource $keepers
     */
    private function fork(mixed $ours, mixed $keepers): bool
    {
        $worker = Process::of((int) getmypid());
        $child = pcntl_fork();
        if ($child === 0) {
            try {
                fclose($ours);
                $keeper = pcntl_fork();
                $keeper === 0
                    ? $this->becomeKeeper($keepers, $worker)
                    : fwrite($keepers, ($keeper > 0 ? $keeper : -pcntl_errno()) . "\n");
            } finally {
                // A plain exit would run the shutdown functions and destructors inherited from the worker and close its
                // database connections; an error would continue into its program.
                posix_kill((int) getmypid(), SIGKILL);
            }
        }
        while ($child > 0 && pcntl_waitpid($child, $status) === -1 && pcntl_errno() === PCNTL_EINTR);
        return $child > 0;
    }

    /** @param float $since when the lease began, by Clock */
    public function begin(Job $job, float $since): void
    {
        $this->lost = null;
        $this->died = false;
        $this->begun = ['begin', $job->id, $job->lease, $job->ttr, $since];
        $this->listen(); // messages about the previous job
        $this->send($this->begun);
    }

    public function end(): void
    {
        $this->begun = null;
        $this->send(['end']);
    }

    /** @param float $end the end of the grace period, by Clock */
    public function grace(float $end): void
    {
        $this->grace = ['grace', $end];
        $this->send($this->grace);
    }

    /** Why the current job is lost; null if it is not. */
    public function lost(): ?string
    {
        $this->listen();
        return $this->lost;
    }

    /** Whether the current job became a dead letter when it was lost. */
    public function died(): bool
    {
        return $this->died;
    }

    /** Whether the handler was notified that it is `stopping`, and did not end. */
    public function abandoned(): bool
    {
        $this->listen();
        return $this->abandoned;
    }

    /** Ends the keeper. It is killed only if it does not end by itself, as another process may have its pid. */
    public function close(): void
    {
        if ($this->socket !== null) {
            [$socket, $this->socket] = [$this->socket, null];
            @fwrite($socket, json_encode(['close']) . "\n");
            self::isAtItsEnd($socket, Clock::now() + self::CLOSE_S) || $this->keeper?->kill(SIGKILL);
            fclose($socket);
        }
    }

    /**
     * Waits until the other end is closed; returns false if it still is not at the time $until.
     *
     * @param resource $socket
     */
    private static function isAtItsEnd(mixed $socket, float $until): bool
    {
        while (!feof($socket) && ($left = $until - Clock::now()) > 0.0) {
            [$read, $write, $except] = [[$socket], null, null];
            @stream_select($read, $write, $except, 0, (int) ceil(min($left, 0.1) * 1e6)); // a signal may end it
            fgets($socket);
        }
        return feof($socket);
    }

    /** @param list<mixed> $message */
    private function send(array $message): void
    {
        $line = json_encode($message) . "\n";
        if (@fwrite($this->socket, $line) !== strlen($line)) {
            $this->restart();
        }
    }

    private function listen(): void
    {
        while (is_string($line = fgets($this->socket))) {
            $message = json_decode($line, true);
            $this->abandoned = $this->abandoned || $message[0] === 'abandoned';
            if ($message[0] === 'lost' && array_slice($message, 1, 2) === array_slice($this->begun ?? [], 1, 2)) {
                [3 => $this->lost, 4 => $this->died] = $message;
            }
        }
        if (feof($this->socket)) {
            $this->restart();
        }
    }

    private function restart(): void
    {
        pcntl_async_signals(false); // a signal handler would use a keeper that is not ready
        $this->close();
        $this->start();
        foreach (array_filter([$this->begun, $this->grace]) as $message) {
            @fwrite($this->socket, json_encode($message) . "\n");
        }
        pcntl_async_signals(true);
        pcntl_signal_dispatch();
    }

    /** @param resource $socket */
    private function becomeKeeper(mixed $socket, Process $worker): void
    {
        foreach (self::IGNORED as $signal) {
            pcntl_signal($signal, SIG_IGN);
        }
        set_error_handler(null);
        // Readers of the worker's output must see its end when the worker ends, not when the keeper does. /dev/null
        // takes the place of these streams, so that no connection gets their numbers, and stays open while this
        // function runs.
        foreach (['STDIN', 'STDOUT'] as $stream) {
            // A daemon may have closed the stream; a program that PHP reads from standard input has neither constant.
            defined($stream) && is_resource(constant($stream)) && fclose(constant($stream));
        }
        $places = [fopen('/dev/null', 'r'), fopen('/dev/null', 'w')];
        (new LeaseKeeper($socket, $this->exchange, $worker, $this->keep_alive_s))->run();
    }
}
