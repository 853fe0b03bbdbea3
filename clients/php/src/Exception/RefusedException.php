<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/**
 * The service refused the command. Each code that this client knows has a subclass: `NOT_FOUND` is NotFoundException.
 */
class RefusedException extends JobQueueException
{
    /** The protocol's code, such as `NOT_FOUND`. getCode() is 0, because PHP expects an int there. */
    public readonly string $error_code;

    /** The job's state, if that is why the command was refused. */
    public readonly ?string $state;

    /** The invalid field, if there is one. */
    public readonly ?string $field;

    /**
     * @param array<string, mixed> $answer the whole answer
     * @param string $subject what was refused: the message begins with it
     * @param int|null $status the HTTP status; null for a member of a batch, which has none
     * @param float|null $retry_after the header Retry-After; the answer's own field takes precedence
     */
    public function __construct(
        public readonly array $answer,
        string $subject = '',
        public readonly ?int $status = null,
        ?float $retry_after = null,
    ) {
        $seconds = $answer['retry_after'] ?? null;
        $retry_after = is_int($seconds) || is_float($seconds) ? (float) $seconds : $retry_after;
        $this->error_code = self::text($answer, 'code') ?? '';
        $this->state = self::text($answer, 'state');
        $this->field = self::text($answer, 'field');
        $sentence = self::text($answer, 'error') ?? $this->error_code;
        $hasState = $this->state === null || str_contains($sentence, $this->state);
        parent::__construct($subject . $sentence . ($hasState ? '' : " (the job is $this->state)"), $retry_after);
    }

    /**
     * Creates the exception for an answer, of the class for its code.
     *
     * @param array<string, mixed> $answer
     */
    public static function of(
        array $answer,
        string $subject = '',
        ?int $status = null,
        ?float $retry_after = null,
    ): self {
        $words = ucwords(strtolower(self::text($answer, 'code') ?? ''), '_');
        $class = __NAMESPACE__ . '\\' . str_replace('_', '', $words) . 'Exception';
        // A code newer than this client has no class, and may not even be a valid class name.
        $class = is_subclass_of($class, self::class) ? $class : self::class;
        return new $class($answer, $subject, $status, $retry_after);
    }

    /** @param array<string, mixed> $answer */
    protected static function text(array $answer, string $name): ?string
    {
        return is_string($answer[$name] ?? null) ? $answer[$name] : null;
    }
}
