<?php

declare(strict_types=1);

namespace JobQueue\Client;

/** Ends a handler that no longer owns its job; see Job::check(). */
final class Lost extends \Exception
{
    /** @param string $reason as Job::lost() returns it */
    public function __construct(public readonly string $reason)
    {
        parent::__construct("the job is lost: $reason");
    }
}
