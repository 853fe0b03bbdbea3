<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use Closure;
use JobQueue\Client\Clock;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Http\Exchange;

/**
 * The pops of a worker: how it asks for its next job, and how it ends a waiting poll.
 *
 * @internal
 */
final class Poll
{
    /** Seconds that a poll has to return after its `leave`. */
    private const LEAVE_S = 1.0;

    private ?float $leftAt = null;

    /** @param list<string> $topics */
    public function __construct(
        private readonly Exchange $exchange,
        private readonly Outbox $outbox,
        private readonly string $worker,
        private array $topics,
        private readonly float $poll_s,
    ) {
    }

    /** @return array<string, mixed> a pop that does not wait; the order of its topics rotates, so that none starves */
    public function pop(): array
    {
        $this->topics[] = array_shift($this->topics);
        return ['command' => 'pop', 'topics' => $this->topics, 'worker' => $this->worker];
    }

    /**
     * Waits for a job, retrying for as long as the service is down.
     *
     * @param Closure(): bool $isStopping
     * @return array<string, mixed>|null the answer; null if the worker must stop
     * @throws RefusedException if no retry can help
     */
    public function answer(Closure $isStopping): ?array
    {
        $pop = $this->pop() + ['wait' => $this->poll_s];
        $hasLeft = fn (): bool => $isStopping() && $this->hasLeft();
        $answer = $this->outbox->answered([$pop], $isStopping, $hasLeft)[0] ?? null;
        return $answer instanceof RefusedException ? throw $answer : $answer;
    }

    /**
     * Whether to abort the poll in flight, because it has not returned although the service was asked to end it.
     *
     * Aborting it at once could lose a job in transit until its TTR is over.
     */
    private function hasLeft(): bool
    {
        $this->leftAt ??= Clock::now();
        // Repeated, because a `leave` that overtakes the poll ends nothing.
        $this->leave($this->leftAt + self::LEAVE_S);
        return Clock::now() >= $this->leftAt + self::LEAVE_S;
    }

    private function leave(float $end): void
    {
        $leave = ['command' => 'leave', 'worker' => $this->worker];
        try {
            $exchange = clone $this->exchange;
            $exchange->all([$leave], $exchange->route(), static fn (): bool => Clock::now() >= $end);
        } catch (JobQueueException) {
            // Then the poll is aborted.
        }
    }
}
