<?php

declare(strict_types=1);

namespace JobQueue\Client\Testing;

use JobQueue\Client\Client;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Job;
use JobQueue\Client\Tracing;
use JobQueue\Client\Worker;
use JobQueue\Client\Worker\DeliverySpan;
use JobQueue\Client\Worker\Handlers;
use JobQueue\Client\Worker\Hooks;
use JobQueue\Client\Worker\Loss;
use JobQueue\Client\Worker\Outcome;
use PHPUnit\Framework\Assert;

/**
 * Handles all ready jobs in a worker's topics, in this process and one after the other.
 *
 * @internal
 */
final class Draining
{
    /** How often one job may be delivered while the clock stands still. */
    private const MOST_TIMES = 100;

    private readonly Handlers $handlers;
    private readonly Hooks $hooks;
    private readonly ?Tracing $tracing;
    /** @var array<string, int> by the id of the job */
    private array $deliveries = [];

    public function __construct(private readonly Client $client, Worker $worker, private readonly bool $raise_errors)
    {
        $this->handlers = $worker->handlers();
        $this->hooks = $worker->hooks();
        $this->tracing = Tracing::find();
    }

    /** @return list<Done> */
    public function run(): array
    {
        $done = [];
        while ($job = $this->client->pop($this->handlers->topics(), worker: 'drain')) {
            $this->deliveries[$job->id] = ($this->deliveries[$job->id] ?? 0) + 1;
            if ($this->deliveries[$job->id] > self::MOST_TIMES) {
                Assert::fail("$job->id is ready again at once whenever it is delivered: it would never end");
            }
            $done[] = $this->done($job);
        }
        return $done;
    }

    private function done(Job $job): Done
    {
        $span = $this->tracing === null ? null : new DeliverySpan($this->tracing, $job);
        $handle = $this->handlers->handle(...);
        $outcome = Outcome::of($span?->around($handle) ?? $handle, $job);
        $defect = $outcome->isWord() ? null : $outcome->error;
        $defect === null || $this->hooks->error($defect, $job);
        $done = $this->ended($outcome, $span);
        if ($done->state === 'dead') {
            $this->hooks->death($job, $outcome->reasonOfDeath(), $outcome->error);
        }
        return $this->raise_errors && $defect !== null ? throw $defect : $done;
    }

    private function ended(Outcome $outcome, ?DeliverySpan $span): Done
    {
        if ($outcome->command === null) { // the pop finished the job, or it is lost
            $outcome->event === 'lost' ? $span?->lost((string) $outcome->reason) : $span?->ended($outcome);
            $state = $outcome->job->ttr > 0.0 ? 'reserved' : 'finished';
            return new Done($outcome->job, $outcome->event, $state, $outcome->error);
        }
        $span?->settling($outcome->command['command']);
        [$answer] = $this->client->batch([$outcome->command]);
        if ($answer instanceof RefusedException) { // the test, or the handler's own code, ended it in the meantime
            $span?->lost(Loss::reason($answer) ?? 'expired', $answer);
            return new Done($outcome->job, 'lost', $answer->state ?? 'unknown', $outcome->error);
        }
        $state = ((array) $answer)['state'];
        $died = $outcome->died($state);
        $span?->ended($outcome, $died);
        return new Done($outcome->job, $died ? 'died' : $outcome->event, $state, $outcome->error);
    }
}
