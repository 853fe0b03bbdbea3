<?php

declare(strict_types=1);

namespace JobQueue\Client\Laravel;

use Illuminate\Contracts\Queue\Queue as QueueContract;
use JobQueue\Client\Client;

/**
 * A Laravel queue: its name is a topic of the service.
 *
 * Laravel's worker counts the tries of a job, so its jobs have no limit of tries in the service.
 */
final class Queue extends \Illuminate\Queue\Queue implements QueueContract
{
    /**
     * @param Client $ends the client that sends the ends of jobs
     * @param float $retryAfter seconds: the TTR of the jobs
     * @param float $blockFor seconds for which a pop waits for a job
     */
    public function __construct(
        private readonly Client $client,
        private readonly Client $ends,
        private readonly string $default,
        private readonly float $retryAfter,
        private readonly float $blockFor,
        bool $afterCommit,
    ) {
        $this->dispatchAfterCommit = $afterCommit;
    }

    /** @param string|null $queue */
    public function size($queue = null): int
    {
        $counts = $this->counts($queue);
        return $counts['delayed'] + $counts['ready'] + $counts['reserved'];
    }

    /** @param string|null $queue */
    public function pendingSize($queue = null): int
    {
        return $this->counts($queue)['ready'];
    }

    /** @param string|null $queue */
    public function delayedSize($queue = null): int
    {
        return $this->counts($queue)['delayed'];
    }

    /** @param string|null $queue */
    public function reservedSize($queue = null): int
    {
        return $this->counts($queue)['reserved'];
    }

    /** @param string|null $queue */
    public function creationTimeOfOldestPendingJob($queue = null): ?int
    {
        $job = $this->client->peek($this->topic($queue), state: 'ready', count: 1)['jobs'][0] ?? null;
        return $job === null ? null : (int) ((array) $job)['created'];
    }

    /**
     * @param string|object $job
     * @param mixed $data
     * @param string|null $queue
     */
    public function push($job, $data = '', $queue = null): mixed
    {
        return $this->later(0, $job, $data, $queue);
    }

    /**
     * @param string $payload
     * @param string|null $queue
     * @param array<string, mixed> $options `delay`: seconds
     */
    public function pushRaw($payload, $queue = null, array $options = []): string
    {
        // An id makes the add safe to repeat. It is not the payload's id, which a failed job keeps when it is retried.
        $id = $this->topic($queue) . ':' . bin2hex(random_bytes(10));
        $delay = max(0, $options['delay'] ?? 0); // as in Laravel, a job that was due earlier is due now
        $this->client->add($this->topic($queue), $payload, $delay, $id, ttr: $this->retryAfter, tries: 0);
        return $id;
    }

    /**
     * @param \DateTimeInterface|\DateInterval|int $delay
     * @param string|object $job
     * @param mixed $data
     * @param string|null $queue
     */
    public function later($delay, $job, $data = '', $queue = null): mixed
    {
        $payload = $this->createPayload($job, $this->topic($queue), $data);
        $push = fn (string $payload, ?string $queue, mixed $delay): string
            => $this->pushRaw($payload, $queue, ['delay' => $this->secondsUntil($delay)]);
        return $this->enqueueUsing($job, $payload, $queue, $delay, $push);
    }

    /** @param string|null $queue */
    public function pop($queue = null): ?ReservedJob
    {
        $topic = $this->topic($queue);
        $job = $this->client->pop($topic, wait: $this->blockFor, worker: gethostname() . ':' . getmypid());
        return $job === null
            ? null
            : new ReservedJob($this->container, $this->ends, $job, $this->connectionName, $topic);
    }

    private function topic(?string $queue): string
    {
        return $queue ?: $this->default;
    }

    /** @return array<string, int> */
    private function counts(?string $queue): array
    {
        return (array) $this->client->stats($this->topic($queue))['counts'];
    }
}
