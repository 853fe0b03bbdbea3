<?php

declare(strict_types=1);

namespace JobQueue\Client;

use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;

/**
 * Sends commands, and sends again, after a pause, what may be sent again.
 *
 * @internal
 */
final class Sender
{
    /** @param float $retry_for_s seconds to go on after the first failure */
    public function __construct(private readonly Exchange $exchange, private readonly float $retry_for_s)
    {
    }

    /**
     * @param array<string, mixed> $command
     * @return array<string, mixed> the answer
     * @throws JobQueueException
     */
    public function one(array $command): array
    {
        $repetition = new Repetition($this->retry_for_s);
        return $this->repeated(fn (): array => $this->exchange->one($command), Repetition::safe($command), $repetition);
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @return list<array<string, mixed>|JobQueueException> of each the answer, or the error
     * @throws JobQueueException when all of them together failed
     */
    public function all(array $commands): array
    {
        $repetition = new Repetition($this->retry_for_s);
        $results = $this->answered($commands, $repetition);
        while ($again = self::refusedForNow($commands, $results)) {
            if (!$repetition->pause(self::longest($again))) {
                break;
            }
            $members = array_values(array_intersect_key($commands, $again));
            $results = array_combine(array_keys($again), $this->resent($members, $repetition)) + $results;
        }
        ksort($results);
        return $results;
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @return list<array<string, mixed>|RefusedException>
     */
    private function answered(array $commands, Repetition $repetition): array
    {
        $safe = array_filter($commands, Repetition::safe(...)) === $commands;
        return $this->repeated(fn (): array => $this->exchange->all($commands) ?? [], $safe, $repetition);
    }

    /**
     * @param list<array<string, mixed>> $commands that were refused for now
     * @return list<array<string, mixed>|JobQueueException>
     */
    private function resent(array $commands, Repetition $repetition): array
    {
        try {
            return $this->answered($commands, $repetition);
        } catch (JobQueueException $error) {
            // Thrown, it would take the answers of all other members with it.
            return array_fill(0, count($commands), $error);
        }
    }

    /**
     * @template Answer
     * @param \Closure(): Answer $send
     * @param bool $safe it does no harm when it was done before
     * @return Answer
     */
    private function repeated(\Closure $send, bool $safe, Repetition $repetition): mixed
    {
        while (true) {
            try {
                return $send();
            } catch (JobQueueException $error) {
                if (!Repetition::helps($error, $safe) || !$repetition->pause($error->retry_after)) {
                    throw $error;
                }
            }
        }
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @param list<array<string, mixed>|JobQueueException> $results
     * @return array<int, RefusedException> by their places
     */
    private static function refusedForNow(array $commands, array $results): array
    {
        return array_filter($results, static fn (mixed $result, int $place): bool
            => $result instanceof RefusedException
            && Repetition::helps($result, Repetition::safe($commands[$place])), ARRAY_FILTER_USE_BOTH);
    }

    /** @param array<int, RefusedException> $refusals */
    private static function longest(array $refusals): float
    {
        return max(array_map(static fn (RefusedException $refusal) => $refusal->retry_after ?? 0.0, $refusals));
    }
}
