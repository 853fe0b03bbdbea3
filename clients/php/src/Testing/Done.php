<?php

declare(strict_types=1);

namespace JobQueue\Client\Testing;

use JobQueue\Client\Job;
use Throwable;

/** A job that Queue::drain() has delivered, and how its handler ended. */
final class Done
{
    /**
     * @param string $outcome finished, failed, retried, buried, died or lost, as in the events of a worker
     * @param string $state the job's state afterwards, such as `delayed` or `dead`
     * @param Throwable|null $error what the handler threw
     */
    public function __construct(
        public readonly Job $job,
        public readonly string $outcome,
        public readonly string $state,
        public readonly ?Throwable $error,
    ) {
    }
}
