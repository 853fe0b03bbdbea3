<?php

declare(strict_types=1);

namespace JobQueue\Client\Testing;

use JobQueue\Client\Bury;
use JobQueue\Client\Client;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Job;
use JobQueue\Client\Lost;
use JobQueue\Client\Retry;
use JobQueue\Client\Worker;
use JobQueue\Client\Worker\Handlers;
use JobQueue\Client\Worker\Outcome;
use PHPUnit\Framework\Assert;

/**
 * One run over all that is ready in a worker's topics: here, one job after the other.
 *
 * @internal
 */
final class Draining
{
    /** How often one job may be delivered while the clock stands still. */
    private const MOST_TIMES = 100;

    private readonly Handlers $handlers;
    /** @var array<string, int> by id */
    private array $deliveries = [];

    public function __construct(private readonly Client $client, Worker $worker, private readonly bool $raise_errors)
    {
        $this->handlers = $worker->handlers();
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
        $outcome = Outcome::of($this->handlers->handle(...), $job);
        $done = $this->ended($outcome);
        $error = $done->error;
        $isMeant = $error instanceof Retry || $error instanceof Bury || $error instanceof Lost;
        return $this->raise_errors && $error !== null && !$isMeant ? throw $error : $done;
    }

    private function ended(Outcome $outcome): Done
    {
        if ($outcome->command === null) { // its pop was its end, or it is lost
            return new Done($outcome->job, $outcome->event, 'finished', $outcome->error);
        }
        [$answer] = $this->client->batch([$outcome->command]);
        if ($answer instanceof RefusedException) { // the test, or the handler's own code, ended it meanwhile
            return new Done($outcome->job, 'lost', $answer->state ?? 'unknown', $outcome->error);
        }
        $state = ((array) $answer)['state'];
        $died = $state === 'dead' && $outcome->event !== 'buried';
        return new Done($outcome->job, $died ? 'died' : $outcome->event, $state, $outcome->error);
    }
}
