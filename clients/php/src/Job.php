<?php

declare(strict_types=1);

namespace JobQueue\Client;

use Closure;

/** A delivery of a job, reserved for its time to run. */
final class Job
{
    /** As in W3C Trace Context. */
    private const TRACEPARENT = '/^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$/D';

    /** Whether this is the last delivery: if it fails, the job is dead. */
    public readonly bool $last_try;

    /** The trace in which the job was added, as 32 hex digits, from its header `traceparent`; null without one. */
    public readonly ?string $trace_id;

    /**
     * @param mixed $body as it was added, decoded
     * @param int $lease the number of this delivery
     * @param int $attempt the number of deliveries that count, including this one
     * @param int $tries the limit of $attempt; 0 for none
     * @param float $due when it was due, in unix seconds
     * @param float $ttr seconds until it is delivered again; 0 if never, as the pop itself finished it
     * @param array<string, string>|null $headers as they were added
     * @param float|null $ready when it became ready again, in unix seconds; null on its first delivery
     * @param (Closure(): (string|null))|null $loss returns the value of lost(); null if no worker keeps the lease
     * @param float|null $created when it was added, in unix seconds; this and the id identify a life of the job; null
     *     from an older service
     */
    public function __construct(
        public readonly string $id,
        public readonly string $topic,
        public readonly mixed $body,
        public readonly int $lease,
        public readonly int $attempt,
        public readonly int $tries,
        public readonly float $due,
        public readonly float $ttr,
        public readonly ?array $headers,
        public readonly ?float $ready = null,
        private readonly ?Closure $loss = null,
        public readonly ?float $created = null,
    ) {
        $traceparent = $headers['traceparent'] ?? '';
        $this->trace_id = preg_match(self::TRACEPARENT, $traceparent, $found) === 1 ? $found[1] : null;
        $this->last_try = $ttr <= 0.0 || ($tries !== 0 && $attempt >= $tries);
    }

    /**
     * @param array<string, mixed> $answer of a pop, or a member of its `jobs`
     * @param (Closure(): (string|null))|null $loss
     * @internal
     */
    public static function fromAnswer(array $answer, ?Closure $loss = null): self
    {
        return new self(
            $answer['id'],
            $answer['topic'],
            $answer['value'],
            $answer['lease'],
            $answer['attempt'],
            $answer['tries'],
            $answer['due'],
            $answer['ttr'],
            $answer['headers'] === null ? null : (array) $answer['headers'],
            $answer['ready'] ?? null,
            $loss,
            $answer['created'] ?? null,
        );
    }

    /**
     * Whether an answer has all that fromAnswer() needs; a reply that is not from a job queue may not.
     *
     * @param array<string, mixed> $answer
     * @internal
     */
    public static function fits(array $answer): bool
    {
        $number = static fn (string $name): bool => is_int($answer[$name] ?? null) || is_float($answer[$name] ?? null);
        return is_string($answer['id'] ?? null) && is_string($answer['topic'] ?? null)
            && array_key_exists('value', $answer) && array_key_exists('headers', $answer)
            && is_int($answer['lease'] ?? null) && is_int($answer['attempt'] ?? null)
            && is_int($answer['tries'] ?? null) && $number('due') && $number('ttr');
    }

    /**
     * In a worker's handler: null while the worker owns the job, otherwise why it does not: `deleted`, `stale` (another
     * worker has it), `expired` (the lease could not be renewed in time) or `stopping` (the grace period is over).
     */
    public function lost(): ?string
    {
        return $this->loss === null ? null : ($this->loss)();
    }

    /** @throws Lost if the job is lost: the handler ends, and nothing is sent to the service */
    public function check(): void
    {
        $reason = $this->lost();
        if ($reason !== null) {
            throw new Lost($reason);
        }
    }
}
