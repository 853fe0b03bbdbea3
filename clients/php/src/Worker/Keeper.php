<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use JobQueue\Client\Clock;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Exchange;

/**
 * The child process of a worker that keeps the lease of its job alive, whatever the handler is blocked in.
 *
 * Over a socket pair come lines of JSON from the worker: `["begin", id, lease, ttr, since]`, `["end"]`, and
 * `["grace", end]` when it is to stop; to the worker go `["lost", id, lease, reason]` and `["abandoned"]`. The keeper
 * lives as long as the worker: it must not hold a lease for a dead one.
 *
 * @internal
 */
final class Keeper
{
    /** Seconds between two looks at whether the worker lives, for its children may hold the socket open. */
    private const LOOK_S = 1.0;

    /** Seconds between two looks at least. */
    private const SHORT_S = 0.01;

    /** Seconds that a touch may take when the lease is over: its answer says whose the job is. */
    private const LATE_S = 0.2;

    /** Seconds that a handler has, after it was told `stopping`, and then again after a signal, to end. */
    private const LAST_WORDS_S = 1.0;

    private ?KeptJob $job = null;
    private float $graceEnd = INF;
    private int $signals = 0;

    /** @param resource $socket */
    public function __construct(
        private readonly mixed $socket,
        private readonly Exchange $exchange,
        private readonly int $worker,
        private readonly float $keep_alive_s,
    ) {
    }

    /** Until the worker is gone. */
    public function run(): void
    {
        $this->listen();
        while (!$this->workerGone()) {
            $this->tick();
            $this->listen();
        }
    }

    private function tick(): void
    {
        $job = $this->job;
        $now = Clock::now();
        if ($job !== null && $now >= $this->graceEnd) {
            $this->abandon($job, $now);
        } elseif ($job !== null && $now >= $job->nextAt) {
            $this->keep($job, $now);
        }
    }

    private function keep(KeptJob $job, float $now): void
    {
        if ($this->workerStopped()) {
            $job->notRenewed($now); // whose the job is when it goes on, the touch then will say
            return;
        }
        $answer = $now < $job->keepUntil ? $this->touched($job, $now) : null;
        $why = $answer instanceof RefusedException ? Loss::reason($answer) : null;
        if (is_array($answer)) {
            $job->renewed($now);
        } elseif ($why !== null) {
            $this->lose($job, $why);
        } elseif (Clock::now() >= $job->until) {
            $this->lose($job, 'expired');
        } else {
            $job->notRenewed($now);
        }
    }

    /** @return array<string, mixed>|RefusedException|null null: no answer came */
    private function touched(KeptJob $job, float $now): array|RefusedException|null
    {
        $touch = ['command' => 'touch', 'id' => $job->id, 'lease' => $job->lease];
        // A quarter: one instance that hangs leaves time to ask another.
        $end = $now < $job->until ? min($job->until, $now + $job->ttr / 4) : $now + self::LATE_S;
        try {
            $answers = $this->exchange->all([$touch], fn (): bool => $this->hears() || Clock::now() >= $end);
            return $answers[0] ?? null;
        } catch (JobQueueException) {
            return null;
        }
    }

    /** The grace is over: others get the job, and the handler is to end: it is told, then interrupted, then killed. */
    private function abandon(KeptJob $job, float $now): void
    {
        if (!$job->lost) {
            $job->ttr > 0.0 && $this->release($job);
            $this->lose($job, 'stopping');
            $this->graceEnd = Clock::now(); // the release may have taken long; the handler hears only now
        }
        if ($now < $this->graceEnd + self::LAST_WORDS_S * ($this->signals + 1)) {
            return;
        }
        $this->tell(['abandoned']);
        posix_kill($this->worker, $this->signals === 0 ? SIGTERM : SIGKILL);
        $this->signals++;
    }

    private function release(KeptJob $job): void
    {
        $release = ['command' => 'release', 'id' => $job->id, 'lease' => $job->lease, 'delay' => 0];
        $end = Clock::now() + self::LAST_WORDS_S;
        try {
            $this->exchange->all([$release + ['reason' => 'stopping']], static fn (): bool => Clock::now() >= $end);
        } catch (JobQueueException) {
            // Then it is handed out again when its TTR is over.
        }
    }

    private function lose(KeptJob $job, string $reason): void
    {
        $job->lose();
        $this->tell(['lost', $job->id, $job->lease, $reason]);
    }

    /** @param list<mixed> $message */
    private function tell(array $message): void
    {
        @fwrite($this->socket, json_encode($message) . "\n");
    }

    /** Waits until there is something to do, and takes in what the worker says. */
    private function listen(): void
    {
        $next = $this->job === null ? INF : min($this->job->nextAt, $this->graceEnd);
        $this->hears(max(self::SHORT_S, min(self::LOOK_S, $next - Clock::now())));
        while (is_string($line = fgets($this->socket))) {
            $this->understand(json_decode($line, true));
        }
    }

    private function hears(float $wait_s = 0.0): bool
    {
        [$read, $write, $except] = [[$this->socket], null, null];
        return (bool) @stream_select($read, $write, $except, (int) $wait_s, (int) (fmod($wait_s, 1.0) * 1e6));
    }

    /** @param list<mixed> $message */
    private function understand(array $message): void
    {
        if ($message[0] === 'begin') {
            [, $id, $lease, $ttr, $since] = $message;
            $this->job = new KeptJob($id, $lease, $ttr, $since, $since + $this->keep_alive_s);
        } elseif ($message[0] === 'end') {
            $this->job = null;
        } elseif ($message[0] === 'grace') {
            $this->graceEnd = $message[1];
        }
    }

    private function workerGone(): bool
    {
        return feof($this->socket) || posix_getppid() !== $this->worker;
    }

    /** A worker that is stopped (SIGSTOP, a debugger) does no work. Only Linux tells. */
    private function workerStopped(): bool
    {
        $stat = (string) @file_get_contents("/proc/{$this->worker}/stat");
        return preg_match('/\) [Tt] /', $stat) === 1;
    }
}
