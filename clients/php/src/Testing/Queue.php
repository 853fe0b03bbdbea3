<?php

declare(strict_types=1);

namespace JobQueue\Client\Testing;

use DateInterval;
use DateTimeImmutable;
use DateTimeInterface;
use JobQueue\Client\Body;
use JobQueue\Client\Client;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Times;
use JobQueue\Client\Worker;
use PHPUnit\Framework\Assert;

/** An empty queue on a test service, whose clock stands still until advance(). */
final class Queue
{
    /** For an assert, times that differ by less are equal: code under test reads the real clock. */
    private const NEAR_S = 1.0;

    public readonly Client $client;

    /**
     * Deletes everything that the service holds.
     *
     * @throws JobQueueException if it is not a test service
     */
    public function __construct(public readonly string $url)
    {
        $this->client = new Client($url);
        $this->reset();
    }

    /** Forget all jobs and topics, and set the clock to the real time. */
    public function reset(): void
    {
        $this->ask(['command' => 'reset']);
    }

    /** The time of the queue's clock. */
    public function now(): DateTimeImmutable
    {
        return new DateTimeImmutable(sprintf('@%.6F', $this->clock(0)));
    }

    /**
     * Let time pass. Afterwards, all jobs that fell due are ready, and leases that ran out have ended.
     *
     * @param int|float|DateInterval $by seconds, or an interval, instead of or in addition to the other units
     */
    public function advance(
        int|float|DateInterval $by = 0,
        int|float $seconds = 0,
        int|float $minutes = 0,
        int|float $hours = 0,
        int|float $days = 0,
    ): void {
        $more = $by instanceof DateInterval ? Times::seconds($by) : $by;
        $this->clock($more + $seconds + 60 * ($minutes + 60 * ($hours + 24 * $days)));
    }

    /**
     * Run the worker's handlers, here and one after the other, until none of its topics has a ready job.
     *
     * Each job ends as in the worker itself.
     *
     * @param bool $raise_errors true to throw what a handler threw, except Retry, Bury and Lost, once its job has ended
     * @return list<Done> what was done, in order
     */
    public function drain(Worker $worker, bool $raise_errors = true): array
    {
        return (new Draining($this->client, $worker, $raise_errors))->run();
    }

    /**
     * The delayed and ready jobs of a topic, or of all topics, in the order in which they are due.
     *
     * @return list<QueuedJob>
     */
    public function waiting(?string $topic = null): array
    {
        $jobs = [...$this->jobs($topic, 'delayed'), ...$this->jobs($topic, 'ready')];
        usort($jobs, static fn (QueuedJob $one, QueuedJob $other): int
            => [$one->delay, $one->due] <=> [$other->delay, $other->due]);
        return $jobs;
    }

    /**
     * The dead letters of a topic, or of all topics.
     *
     * @return list<QueuedJob>
     */
    public function dead(?string $topic = null): array
    {
        return $this->jobs($topic, 'dead');
    }

    /**
     * Fail unless exactly one waiting job of the topic is as described; returns this job.
     *
     * @param int|float|DateInterval|null $delay the time until it is ready, by the queue's clock, within a second
     * @param DateTimeInterface|int|float|null $at when it is due, within a second
     */
    public function assertWaiting(
        string $topic,
        ?string $id = null,
        mixed $body = Body::Any,
        int|float|DateInterval|null $delay = null,
        DateTimeInterface|int|float|null $at = null,
    ): QueuedJob {
        $waiting = $this->waiting($topic);
        $found = array_values(array_filter($waiting, static fn (QueuedJob $job): bool
            => ($id === null || $job->id === $id)
            && ($body === Body::Any || self::isBody($body, $job->body))
            && self::isNear($delay instanceof DateInterval ? Times::seconds($delay) : $delay, $job->delay)
            && self::isNear($at instanceof DateTimeInterface ? (float) $at->format('U.u') : $at, $job->due)));
        $count = count($found);
        $list = $waiting === [] ? 'no job is waiting' : "waiting now:\n  " . implode("\n  ", $waiting);
        Assert::assertCount(1, $found, "$count jobs, not one, wait in $topic as described; $list");
        return $found[0];
    }

    /** Fail if any job of the topic, or of any topic, is delayed or ready. */
    public function assertNoneWaiting(?string $topic = null): void
    {
        $waiting = $this->waiting($topic);
        Assert::assertCount(0, $waiting, "waiting now:\n  " . implode("\n  ", $waiting));
    }

    /** Strings and numbers must be the same; an array may have its keys in another order. */
    private static function isBody(mixed $expected, mixed $actual): bool
    {
        return is_array($expected) ? $expected == $actual : $expected === $actual;
    }

    private static function isNear(int|float|null $expected, float $actual): bool
    {
        return $expected === null || abs($expected - $actual) <= self::NEAR_S;
    }

    private function clock(int|float $advance): float
    {
        return $this->ask(['command' => 'clock', 'advance' => $advance])['now'];
    }

    /**
     * @param array<string, mixed> $command
     * @return array<string, mixed>
     */
    private function ask(array $command): array
    {
        [$answer] = $this->client->batch([$command]);
        return $answer instanceof JobQueueException ? throw $answer : $answer;
    }

    /** @return list<QueuedJob> */
    private function jobs(?string $topic, string $state): array
    {
        $now = $this->clock(0);
        $jobs = [];
        foreach ($topic === null ? $this->topics() : [$topic] as $each) {
            for ($cursor = null, $more = true; $more; $more = $cursor !== null) {
                ['jobs' => $page, 'cursor' => $cursor] = $this->client->peek($each, state: $state, cursor: $cursor);
                array_push($jobs, ...array_map(static fn (array $job): QueuedJob => QueuedJob::of($job, $now), $page));
            }
        }
        return $jobs;
    }

    /** @return list<string> */
    private function topics(): array
    {
        $topics = [];
        for ($cursor = null, $more = true; $more; $more = $cursor !== null) {
            ['topics' => $page, 'cursor' => $cursor] = $this->client->topics(cursor: $cursor);
            array_push($topics, ...array_column($page, 'topic'));
        }
        return $topics;
    }
}
