<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use Closure;
use JobQueue\Client\Clock;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Exception\UnreachableException;
use JobQueue\Client\Http\Exchange;
use JobQueue\Client\Http\Route;

/**
 * The lease keeper: a process beside a worker that keeps the lease of its job alive even while the handler blocks.
 *
 * The worker sends lines of JSON over a socket pair: `["begin", id, lease, ttr, since]`, `["end"]`, `["grace", end]`
 * once the worker must stop, and `["close"]`, which ends the keeper. The keeper sends `["lost", id, lease, reason,
 * dead]` and `["abandoned"]`. It ends with the worker, because it must not keep the lease of a dead worker.
 *
 * @internal
 */
final class LeaseKeeper
{
    /** Seconds between checks that the worker is alive; its children may hold the socket open. */
    private const LOOK_S = 1.0;

    /** The least time in seconds between two checks. */
    private const SHORT_S = 0.01;

    /** Seconds that a touch may take once the lease is over: its answer shows who owns the job. */
    private const LATE_S = 0.2;

    /** Seconds that a handler gets to end once its job is lost as `stopping`, and again after a signal. */
    private const LAST_WORDS_S = 1.0;

    private ?Lease $job = null;
    private float $graceEnd = INF;
    private int $signals = 0;
    private bool $closed = false;

    /** @param resource $socket */
    public function __construct(
        private readonly mixed $socket,
        private readonly Exchange $exchange,
        private readonly Process $worker,
        private readonly float $keep_alive_s,
    ) {
    }

    /** Runs until the worker closes it, or the worker is gone. */
    public function run(): void
    {
        $this->listen();
        while (!$this->closed && !$this->workerGone()) {
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

    private function keep(Lease $job, float $now): void
    {
        if ($this->worker->isStopped()) {
            $job->notRenewed($now); // once it continues, the next touch shows who owns the job
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

    /** @return array<string, mixed>|RefusedException|null null if no answer arrived */
    private function touched(Lease $job, float $now): array|RefusedException|null
    {
        $touch = ['command' => 'touch', 'id' => $job->id, 'lease' => $job->lease];
        // A quarter of the TTR, so that an instance that hangs leaves time to ask another one.
        $end = $now < $job->until ? min($job->until, $now + $job->ttr / 4) : $now + self::LATE_S;
        $over = fn (): bool => $this->hasMessage() || Clock::now() >= $end;
        $route = $this->exchange->route();
        $answer = $this->answered($touch, $over, $route);
        if ($answer === null && Clock::now() >= $end) {
            $route->gaveUp();
        }
        return $answer instanceof UnreachableException ? null : $answer;
    }

    /**
     * Asks each address at most once.
     *
     * @param array<string, mixed> $command
     * @param Closure(): bool $over
     * @return array<string, mixed>|JobQueueException|null null if $over was true before an answer arrived
     */
    private function answered(array $command, Closure $over, ?Route $route = null): array|JobQueueException|null
    {
        $route ??= $this->exchange->route();
        do {
            try {
                $answer = $this->exchange->all([$command], $route, $over)[0] ?? null;
            } catch (JobQueueException $error) {
                $answer = $error;
            }
        } while ($answer instanceof JobQueueException && $route->hasAnother($answer) && !$over());
        return $answer;
    }

    /** The grace period is over: the job is released, and its handler is notified, then interrupted, then killed. */
    private function abandon(Lease $job, float $now): void
    {
        if (!$job->lost) {
            $dead = $job->ttr > 0.0 && $this->release($job) === 'dead';
            $this->lose($job, 'stopping', $dead);
            $this->graceEnd = Clock::now(); // the release may have taken long, and the handler is notified only now
        }
        if ($now < $this->graceEnd + self::LAST_WORDS_S * ($this->signals + 1)) {
            return;
        }
        $this->send(['abandoned']);
        $this->worker->kill($this->signals === 0 ? SIGTERM : SIGKILL);
        $this->signals++;
    }

    /** @return string|null the state of the job; null if there is no answer */
    private function release(Lease $job): ?string
    {
        $release = ['command' => 'release', 'id' => $job->id, 'lease' => $job->lease, 'delay' => 0];
        $end = Clock::now() + self::LAST_WORDS_S;
        $answer = $this->answered($release + ['reason' => 'stopping'], static fn (): bool => Clock::now() >= $end);
        return is_array($answer) ? $answer['state'] ?? null : null; // if unanswered, the job returns after its TTR
    }

    private function lose(Lease $job, string $reason, bool $dead = false): void
    {
        $job->lose();
        $this->send(['lost', $job->id, $job->lease, $reason, $dead]);
    }

    /** @param list<mixed> $message */
    private function send(array $message): void
    {
        @fwrite($this->socket, json_encode($message) . "\n");
    }

    /** Waits until there is something to do, and reads the worker's messages. */
    private function listen(): void
    {
        $next = $this->job === null ? INF : min($this->job->nextAt, $this->graceEnd);
        $this->hasMessage(max(self::SHORT_S, min(self::LOOK_S, $next - Clock::now())));
        while (is_string($line = fgets($this->socket))) {
            $this->handle(json_decode($line, true));
        }
    }

    private function hasMessage(float $wait_s = 0.0): bool
    {
        [$read, $write, $except] = [[$this->socket], null, null];
        return (bool) @stream_select($read, $write, $except, (int) $wait_s, (int) (fmod($wait_s, 1.0) * 1e6));
    }

    /** @param list<mixed> $message */
    private function handle(array $message): void
    {
        if ($message[0] === 'begin') {
            [, $id, $lease, $ttr, $since] = $message;
            $this->job = new Lease($id, $lease, $ttr, $since, $since + $this->keep_alive_s);
        } elseif ($message[0] === 'end') {
            $this->job = null;
        } elseif ($message[0] === 'grace') {
            $this->graceEnd = $message[1];
        } elseif ($message[0] === 'close') {
            $this->closed = true;
        }
    }

    private function workerGone(): bool
    {
        return feof($this->socket) || !$this->worker->isAlive();
    }
}
