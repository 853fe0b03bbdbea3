<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/**
 * The service said no. Each code that this client knows has a subclass: `NOT_FOUND` is NotFoundException.
 */
class RefusedException extends JobQueueException
{
    /** @var string the word for programs, as `NOT_FOUND`; getCode() gives it too */
    public $code;

    /** The state that the job is in, where that is why. */
    public readonly ?string $state;

    /** The field of the command that is to blame, where one is. */
    public readonly ?string $field;

    /**
     * @param array<string, mixed> $answer all of the answer
     * @param int|null $status the HTTP status; null in a batch, where the members have none
     * @param float|null $retry_after what the header Retry-After said; the answer's own word comes first
     */
    final public function __construct(
        public readonly array $answer,
        public readonly ?int $status = null,
        ?float $retry_after = null,
    ) {
        $seconds = $answer['retry_after'] ?? null;
        $retry_after = is_int($seconds) || is_float($seconds) ? (float) $seconds : $retry_after;
        parent::__construct(self::text($answer, 'error') ?? '', $retry_after);
        $this->code = self::text($answer, 'code') ?? '';
        $this->state = self::text($answer, 'state');
        $this->field = self::text($answer, 'field');
    }

    /**
     * The exception of the class that the answer's code has.
     *
     * @param array<string, mixed> $answer
     */
    public static function of(array $answer, ?int $status = null, ?float $retry_after = null): self
    {
        $words = ucwords(strtolower(self::text($answer, 'code') ?? ''), '_');
        $class = __NAMESPACE__ . '\\' . str_replace('_', '', $words) . 'Exception';
        // A code that is newer than this client has no class, and need not even be a class's name.
        $class = is_subclass_of($class, self::class) ? $class : self::class;
        return new $class($answer, $status, $retry_after);
    }

    /** @param array<string, mixed> $answer */
    private static function text(array $answer, string $name): ?string
    {
        return is_string($answer[$name] ?? null) ? $answer[$name] : null;
    }
}
