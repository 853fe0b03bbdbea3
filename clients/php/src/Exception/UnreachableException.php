<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** No answer from a job queue: no connection, a time-out, a broken connection, or a proxy's error page. */
final class UnreachableException extends JobQueueException
{
    /**
     * @param bool $maybe_done whether the service may have executed the command nevertheless
     * @param int|null $status the HTTP status of a proxy's page; null if no response arrived
     */
    public function __construct(
        string $message,
        public readonly bool $maybe_done,
        public readonly ?int $status = null,
        ?float $retry_after = null,
    ) {
        parent::__construct($message, $retry_after);
    }

    /** The same error, for a command; $maybe_done: true if an earlier attempt may have been executed. */
    public function of(string $subject, bool $maybe_done = false): self
    {
        $maybe_done = $maybe_done || $this->maybe_done;
        return new self($subject . $this->getMessage(), $maybe_done, $this->status, $this->retry_after);
    }
}
