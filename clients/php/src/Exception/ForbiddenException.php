<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `FORBIDDEN`: the token lacks a right, or may not access the topic. */
final class ForbiddenException extends RefusedException
{
    /** The missing right, or null if that is not the reason. */
    public readonly ?string $right;

    /** The topic that the token may not access, or null if that is not the reason. */
    public readonly ?string $topic;

    public function __construct(array $answer, string $subject = '', ?int $status = null, ?float $retry_after = null)
    {
        parent::__construct($answer, $subject, $status, $retry_after);
        $this->right = self::text($answer, 'right');
        $this->topic = self::text($answer, 'topic');
    }
}
