<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** The base class of all errors that the service, or the connection to it, causes. */
abstract class JobQueueException extends \RuntimeException
{
    /** @param float|null $retry_after seconds before which a retry is pointless, if the service or a proxy said so */
    public function __construct(string $message, public readonly ?float $retry_after = null)
    {
        parent::__construct($message);
    }
}
