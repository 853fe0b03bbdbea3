<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** All that the client raises because of the service or the way to it. */
abstract class JobQueueException extends \RuntimeException
{
    /** @param float|null $retry_after seconds before which no repetition helps, where the other side said so */
    public function __construct(string $message, public readonly ?float $retry_after = null)
    {
        parent::__construct($message);
    }
}
