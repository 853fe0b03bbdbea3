<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** No answer of a job queue came: no connection, a time-out, a broken connection, a proxy's page. */
final class UnreachableException extends JobQueueException
{
    /**
     * @param bool $maybe_done whether the service may have done it all the same
     * @param int|null $status the HTTP status of a proxy's page; null: no answer at all came
     */
    public function __construct(
        string $message,
        public readonly bool $maybe_done,
        public readonly ?int $status = null,
        ?float $retry_after = null,
    ) {
        parent::__construct($message, $retry_after);
    }
}
