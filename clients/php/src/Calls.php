<?php

declare(strict_types=1);

namespace JobQueue\Client;

use JobQueue\Client\Exception\AlreadyExistsException;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Exception\UnavailableException;
use JobQueue\Client\Exception\UnreachableException;
use JobQueue\Client\Http\Exchange;

/**
 * Calls: sends commands, and retries, after a pause, those that are safe to repeat.
 *
 * @internal
 */
final class Calls
{
    /**
     * @param float $retry_for_s seconds for which to retry after the first failure
     * @param CallSpans|null $spans null if calls are not traced
     */
    public function __construct(
        private readonly Exchange $exchange,
        private readonly float $retry_for_s,
        private readonly ?CallSpans $spans,
    ) {
    }

    /**
     * @param array<string, mixed> $command
     * @param string|null $topic for the span: that of the job, if the command does not name it
     * @return array<string, mixed> the answer
     * @throws JobQueueException
     */
    public function one(array $command, ?string $topic = null): array
    {
        return $this->spans === null ? $this->sent($command) : $this->spans->one($command, $topic, $this->sent(...));
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @return list<array<string, mixed>|JobQueueException> each one's answer, or its error
     * @throws JobQueueException if the request failed as a whole
     */
    public function all(array $commands): array
    {
        return $this->spans === null ? $this->allSent($commands) : $this->spans->all($commands, $this->allSent(...));
    }

    /**
     * @param array<string, mixed> $command
     * @return array<string, mixed> the answer
     * @throws JobQueueException
     */
    private function sent(array $command): array
    {
        $retries = $this->retries();
        $send = fn (): array => $this->exchange->one($command, $retries->route);
        try {
            return $this->repeated($send, Retries::isSafe($command), $retries);
        } catch (AlreadyExistsException $error) {
            $answer = $retries->uncertain ? Retries::foundDead($command, $error) : $error;
            return is_array($answer) ? $answer : throw $error;
        }
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @return list<array<string, mixed>|JobQueueException> each one's answer, or its error
     * @throws JobQueueException if the request failed as a whole
     */
    private function allSent(array $commands): array
    {
        $retries = $this->retries();
        $results = $this->answered($commands, $retries);
        while ($again = self::open($commands, $results)) {
            if (!$retries->pause(self::slowest($again))) {
                break;
            }
            $members = array_values(array_intersect_key($commands, $again));
            $results = array_combine(array_keys($again), $this->resent($members, $retries)) + $results;
        }
        ksort($results);
        return $results;
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @return list<array<string, mixed>|RefusedException>
     */
    private function answered(array $commands, Retries $retries): array
    {
        $safe = array_filter($commands, Retries::isSafe(...)) === $commands;
        $send = fn (): array => $this->exchange->all($commands, $retries->route) ?? [];
        $results = $this->repeated($send, $safe, $retries);
        if ($retries->uncertain) {
            $results = array_map(Retries::foundDead(...), $commands, $results);
        }
        $unavailable = static fn (mixed $each): bool => $each instanceof UnavailableException;
        $retries->uncertain = $retries->uncertain || array_filter($results, $unavailable) !== [];
        return $results;
    }

    /**
     * @param list<array<string, mixed>> $commands the commands to send again
     * @return list<array<string, mixed>|JobQueueException>
     */
    private function resent(array $commands, Retries $retries): array
    {
        try {
            return $this->answered($commands, $retries);
        } catch (JobQueueException $error) {
            // If thrown, the answers of all other members would be lost.
            return array_fill(0, count($commands), $error);
        }
    }

    /**
     * @template Answer
     * @param \Closure(): Answer $send
     * @param bool $safe true if executing the commands twice does no harm
     * @return Answer
     */
    private function repeated(\Closure $send, bool $safe, Retries $retries): mixed
    {
        while (true) {
            try {
                return $send();
            } catch (JobQueueException $error) {
                if ($error instanceof UnreachableException) {
                    $error = $retries->uncertain ? $error->of('', maybe_done: true) : $error;
                    $retries->uncertain = $error->maybe_done;
                } else {
                    $retries->uncertain = $retries->uncertain || $error instanceof UnavailableException;
                }
                if (!Retries::mayHelp($error, $safe) || !$retries->pause($error)) {
                    throw $error;
                }
            }
        }
    }

    private function retries(): Retries
    {
        return new Retries($this->exchange->route(), $this->retry_for_s);
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @param list<array<string, mixed>|JobQueueException> $results
     * @return array<int, RefusedException> the members to send again, by position
     */
    private static function open(array $commands, array $results): array
    {
        return array_filter($results, static fn (mixed $result, int $place): bool
            => $result instanceof RefusedException
            && Retries::mayHelp($result, Retries::isSafe($commands[$place])), ARRAY_FILTER_USE_BOTH);
    }

    /** @param non-empty-array<int, RefusedException> $refusals */
    private static function slowest(array $refusals): RefusedException
    {
        usort($refusals, static fn (RefusedException $one, RefusedException $other): int
            => ($other->retry_after ?? 0.0) <=> ($one->retry_after ?? 0.0));
        return $refusals[0];
    }
}
