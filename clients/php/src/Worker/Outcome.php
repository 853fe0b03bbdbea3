<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use JobQueue\Client\Bury;
use JobQueue\Client\Clock;
use JobQueue\Client\Job;
use JobQueue\Client\Lost;
use JobQueue\Client\Retry;

/**
 * How a handler ended, and the command to send for it.
 *
 * @internal
 */
final class Outcome
{
    /** Losses after which the outcome can no longer count; after other losses, it may. */
    private const OVER = ['deleted', 'stopping'];

    /**
     * @param string $event finished, failed, retried, buried or lost
     * @param array<string, mixed>|null $command null if nothing is sent
     * @param float $seconds the duration of the handler
     * @param \Throwable|null $error what the handler threw
     */
    private function __construct(
        public readonly Job $job,
        public readonly string $event,
        public readonly ?array $command,
        public readonly ?string $reason,
        public readonly float $seconds,
        public readonly ?\Throwable $error = null,
    ) {
    }

    /** @param callable(Job): mixed $handler */
    public static function of(callable $handler, Job $job): self
    {
        $begun = Clock::now();
        [$event, $fields, $reason, $error] = self::outcome($handler, $job);
        $lost = $job->lost();
        if ($event !== 'lost' && in_array($lost, self::OVER, true)) {
            [$event, $fields, $reason] = ['lost', null, $lost];
        }
        $command = null;
        // A job with ttr 0 was finished by its pop.
        if ($fields !== null && $job->ttr > 0.0) {
            $given = array_filter($fields, static fn (mixed $value): bool => $value !== null);
            $command = $given + ['id' => $job->id, 'lease' => $job->lease];
        }
        return new self($job, $event, $command, $reason, Clock::now() - $begun, $error);
    }

    /**
     * @param callable(Job): mixed $handler
     * @return array{string, array<string, mixed>|null, string|null, \Throwable|null}
     */
    private static function outcome(callable $handler, Job $job): array
    {
        try {
            $handler($job);
            return ['finished', ['command' => 'finish'], null, null];
        } catch (Lost $lost) {
            return ['lost', null, $lost->reason, $lost];
        } catch (Retry $retry) {
            $reason = self::fitting($retry->reason) ?? self::lastTry($retry, $job);
            $fields = ['delay' => $retry->after, 'attempt' => $retry->attempt, 'reason' => $reason];
            return ['retried', ['command' => 'release'] + $fields, $reason, $retry];
        } catch (Bury $bury) {
            $reason = self::fitting($bury->reason);
            return ['buried', ['command' => 'bury', 'reason' => $reason], $reason, $bury];
        } catch (\Throwable $error) {
            $reason = self::fitting($error::class . ': ' . $error->getMessage());
            return ['failed', ['command' => 'release', 'reason' => $reason], $reason, $error];
        }
    }

    /** Whether the end of this delivery made the job a dead letter, though the handler did not ask for that. */
    public function died(?string $state): bool
    {
        return $state === 'dead' && $this->event !== 'buried';
    }

    public function reasonOfDeath(): ?string
    {
        return $this->reason ?? ($this->event === 'buried' ? null : 'the ttl ran out');
    }

    /** Whether the handler threw Retry, Bury or Lost, which are words to the worker, not errors. */
    public function isWord(): bool
    {
        return $this->error instanceof Retry || $this->error instanceof Bury || $this->error instanceof Lost;
    }

    /** The reason for the death of a job whose handler asks for a retry on the last try. */
    private static function lastTry(Retry $retry, Job $job): ?string
    {
        $dies = $retry->attempt && $job->last_try && $job->ttr > 0.0;
        return $dies ? "the tries ran out: $job->attempt of $job->tries" : null;
    }

    /** A reason that fits: the service keeps 1,000 characters and accepts only UTF-8; errors may contain anything. */
    public static function fitting(?string $reason): ?string
    {
        if ($reason === null) {
            return null;
        }
        $valid = json_decode((string) json_encode($reason, JSON_INVALID_UTF8_SUBSTITUTE));
        preg_match('/^.{0,1000}/su', $valid, $found);
        return $found[0];
    }
}
