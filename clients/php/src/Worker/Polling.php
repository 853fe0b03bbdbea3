<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use Closure;
use JobQueue\Client\Clock;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Exchange;

/**
 * How a worker asks for its next job, and how it takes back that it asked.
 *
 * @internal
 */
final class Polling
{
    /** Seconds that a poll has to come back after `leave`. */
    private const LEAVE_S = 1.0;

    private ?float $leftAt = null;

    /** @param list<string> $topics */
    public function __construct(
        private readonly Exchange $exchange,
        private readonly Service $service,
        private readonly string $worker,
        private array $topics,
        private readonly float $poll_s,
    ) {
    }

    /** @return array<string, mixed> that does not wait, with the topics in another order each time: none starves */
    public function pop(): array
    {
        $this->topics[] = array_shift($this->topics);
        return ['command' => 'pop', 'topics' => $this->topics, 'worker' => $this->worker];
    }

    /**
     * Waits for a job, over all troubles of the service.
     *
     * @param Closure(): bool $isStopping
     * @return array<string, mixed>|null the answer; null: the worker is to stop
     * @throws RefusedException that no repetition can help
     */
    public function answer(Closure $isStopping): ?array
    {
        $pop = $this->pop() + ['wait' => $this->poll_s];
        $hasLeft = fn (): bool => $isStopping() && $this->hasLeft();
        $answer = $this->service->answered([$pop], $isStopping, $hasLeft)[0] ?? null;
        return $answer instanceof RefusedException ? throw $answer : $answer;
    }

    /**
     * Whether the poll in flight is to be cut off, because it did not come back when the service was asked to end it.
     *
     * To cut it off at once could lose a job that is just on its way, until its TTR is over.
     */
    private function hasLeft(): bool
    {
        $this->leftAt ??= Clock::now();
        // Again and again, for one that overtakes the poll on its way ends nothing.
        $this->leave($this->leftAt + self::LEAVE_S);
        return Clock::now() >= $this->leftAt + self::LEAVE_S;
    }

    private function leave(float $end): void
    {
        $leave = ['command' => 'leave', 'worker' => $this->worker];
        try {
            (clone $this->exchange)->all([$leave], static fn (): bool => Clock::now() >= $end);
        } catch (JobQueueException) {
            // Then the poll is cut off.
        }
    }
}
