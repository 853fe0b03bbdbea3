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
     */
    final public function __construct(public readonly array $answer, public readonly ?int $status = null)
    {
        $retryAfter = $answer['retry_after'] ?? null;
        parent::__construct((string) ($answer['error'] ?? ''), $retryAfter === null ? null : (float) $retryAfter);
        $this->code = (string) ($answer['code'] ?? '');
        $this->state = $answer['state'] ?? null;
        $this->field = $answer['field'] ?? null;
    }

    /**
     * The exception of the class that the answer's code has.
     *
     * @param array<string, mixed> $answer
     */
    public static function of(array $answer, ?int $status = null): self
    {
        $words = ucwords(strtolower((string) ($answer['code'] ?? '')), '_');
        $class = __NAMESPACE__ . '\\' . str_replace('_', '', $words) . 'Exception';
        // A code that is newer than this client has no class, and need not even be a class's name.
        return is_subclass_of($class, self::class) ? new $class($answer, $status) : new self($answer, $status);
    }
}
