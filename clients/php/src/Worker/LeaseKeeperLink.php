<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use JobQueue\Client\Http\Exchange;
use JobQueue\Client\Job;

/**
 * The worker's link to its lease keeper: starts it, exchanges messages with it, and restarts it if it dies.
 *
 * @internal
 */
final class LeaseKeeperLink
{
    /** The keeper ignores these: Ctrl-C reaches it too, and it must live as long as the worker. */
    private const IGNORED = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM];

    /** @var resource|null */
    private mixed $socket = null;
    private int $pid = 0;
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

    public function start(): void
    {
        $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, STREAM_IPPROTO_IP);
        if ($pair === false) {
            throw new \RuntimeException('cannot create a socket pair for the lease keeper');
        }
        array_map(static fn (mixed $end) => stream_set_blocking($end, false), $pair);
        $worker = (int) getmypid();
        // Blocked until the child ignores them: a signal to both at this moment must not end it.
        pcntl_sigprocmask(SIG_BLOCK, self::IGNORED, $before);
        $pid = pcntl_fork();
        if ($pid === 0) {
            try {
                fclose($pair[0]);
                $this->becomeKeeper($pair[1], $worker);
            } finally {
                // A plain exit would run the shutdown functions and destructors inherited from the worker and close its
                // database connections; an error would continue into its program.
                posix_kill((int) getmypid(), SIGKILL);
            }
        }
        pcntl_sigprocmask(SIG_SETMASK, $before);
        fclose($pair[1]);
        if ($pid === -1) {
            throw new \RuntimeException('cannot fork the lease keeper: ' . pcntl_strerror(pcntl_errno()));
        }
        [$this->socket, $this->pid] = [$pair[0], $pid];
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

    /** @param float $end of the grace period, by Clock */
    public function grace(float $end): void
    {
        $this->grace = ['grace', $end];
        $this->send($this->grace);
    }

    /** Why the current job is lost; null: it is not. */
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

    public function close(): void
    {
        if ($this->socket !== null) {
            fclose($this->socket);
            $this->socket = null;
            posix_kill($this->pid, SIGKILL);
            pcntl_waitpid($this->pid, $status);
        }
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
    private function becomeKeeper(mixed $socket, int $worker): void
    {
        foreach (self::IGNORED as $signal) {
            pcntl_signal($signal, SIG_IGN);
        }
        set_error_handler(null);
        // Readers of the worker's output must see its end when the worker ends, not when the keeper does. /dev/null takes
        // the places, so that no connection gets these numbers, and stays open while this function runs.
        foreach (['STDIN', 'STDOUT'] as $stream) {
            // A daemon may have closed it; a program that PHP reads from standard input has neither constant.
            defined($stream) && is_resource(constant($stream)) && fclose(constant($stream));
        }
        $places = [fopen('/dev/null', 'r'), fopen('/dev/null', 'w')];
        (new LeaseKeeper($socket, $this->exchange, $worker, $this->keep_alive_s))->run();
    }
}
