<?php

declare(strict_types=1);

namespace JobQueue\Client\Laravel;

use Illuminate\Container\Container;
use Illuminate\Contracts\Queue\Job as JobContract;
use JobQueue\Client\Client;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Job;
use JobQueue\Client\Worker\Loss;

/** A job that Laravel's worker has reserved. */
final class ReservedJob extends \Illuminate\Queue\Jobs\Job implements JobContract
{
    /**
     * @param Container $container
     * @param string $connectionName
     * @param string $queue
     */
    public function __construct(
        $container,
        private readonly Client $client,
        private readonly Job $job,
        $connectionName,
        $queue,
    ) {
        $this->container = $container;
        $this->connectionName = $connectionName;
        $this->queue = $queue;
    }

    /** The job is done, or failed for good: Laravel stores its failed jobs itself. */
    public function delete(): void
    {
        parent::delete();
        $this->unlessLost(fn () => $this->client->finish($this->job));
    }

    /** @param int $delay seconds; below 0 counts as 0 */
    public function release($delay = 0): void
    {
        parent::release($delay);
        $this->unlessLost(fn () => $this->client->release($this->job, delay: max(0, $delay)));
    }

    public function attempts(): int
    {
        return $this->job->attempt;
    }

    public function getJobId(): string
    {
        return $this->job->id;
    }

    public function getRawBody(): string
    {
        return $this->job->body;
    }

    /** Sends an end, which is ignored if the lease is over: then the job belongs to another worker, or to none. */
    private function unlessLost(\Closure $end): void
    {
        try {
            $end();
        } catch (RefusedException $refusal) {
            Loss::reason($refusal) !== null || throw $refusal;
        }
    }
}
