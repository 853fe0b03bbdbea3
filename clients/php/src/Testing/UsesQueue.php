<?php

declare(strict_types=1);

namespace JobQueue\Client\Testing;

use PHPUnit\Framework\Attributes\Before;

/**
 * For a test case of PHPUnit: `$this->queue` is an empty queue, whose clock stands at the real time.
 *
 * All tests share one service: the one that JOBQUEUE_TEST_URL names, or one that runs as long as the tests.
 */
trait UsesQueue
{
    protected Queue $queue;

    /** @before */
    #[Before]
    protected function beginWithAnEmptyQueue(): void
    {
        $this->queue = new Queue(getenv('JOBQUEUE_TEST_URL') ?: TestService::url());
    }
}
