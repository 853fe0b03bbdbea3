<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use JobQueue\Client\Clock;
use JobQueue\Client\Job;
use Throwable;

/**
 * The report of a worker: events for its hook and its log, and counts.
 *
 * @internal
 */
final class Report
{
    /** Events of every job: they are not logged, but counted in the heartbeat. */
    private const NOT_LOGGED = ['job.started', 'job.finished', 'job.retried'];

    private const LEVELS = [
        'job.failed' => 'warning',
        'job.died' => 'error',
        'job.buried' => 'warning',
        'job.lost' => 'warning',
        'job.expired' => 'warning',
        'service.lost' => 'warning',
    ];

    /** @var array<string, int> */
    private array $counts = ['finished' => 0, 'failed' => 0, 'retried' => 0, 'buried' => 0, 'died' => 0, 'lost' => 0];
    private float $nextBeat;
    private ?float $goneSince = null;

    /** @param float $heartbeat_s 0 for none */
    public function __construct(
        private readonly string $worker,
        private readonly float $heartbeat_s,
        private readonly Hooks $hooks,
        private readonly Log $log,
    ) {
        $this->nextBeat = Clock::now() + $heartbeat_s;
    }

    /** @param array<string, mixed> $fields */
    public function event(string $name, array $fields): void
    {
        if (!in_array($name, self::NOT_LOGGED, true)) {
            $this->log->write(self::LEVELS[$name] ?? 'info', $name, $fields);
        }
        $this->hooks->event($name, $fields);
    }

    /** @param array<string, mixed> $fields */
    public function worker(string $event, array $fields = []): void
    {
        $this->event("worker.$event", ['worker' => $this->worker] + $fields);
    }

    public function stopped(): void
    {
        $this->worker('stopped', $this->counts);
    }

    public function started(Job $job): void
    {
        $late = round(microtime(true) - ($job->ready ?? $job->due), 3);
        $this->event('job.started', self::of($job) + ['late_s' => $late]);
    }

    public function returned(Job $job): void
    {
        $this->event('job.returned', self::of($job));
    }

    /**
     * Reports the end of a delivery. For a job that died, no retry is reported, but a failure of its handler is.
     *
     * @param bool $died true if the service made the job a dead letter, because its tries or its ttl ran out
     */
    public function ended(Outcome $outcome, bool $died = false): void
    {
        if (!$died || $outcome->event === 'failed') {
            $this->count($outcome->event, $outcome);
        }
        if ($died) {
            $this->died($outcome, $outcome->reasonOfDeath(), $outcome->error);
        } elseif ($outcome->event === 'buried') {
            $this->hooks->death($outcome->job, $outcome->reason, $outcome->error);
        }
    }

    public function died(Outcome $outcome, ?string $reason, ?Throwable $error = null): void
    {
        $this->counts['died']++;
        $fields = self::of($outcome->job) + ['seconds' => round($outcome->seconds, 3)];
        $this->event('job.died', $fields + ['reason' => $reason, 'error' => $error]);
        $this->hooks->death($outcome->job, $reason, $error);
    }

    private function count(string $event, Outcome $outcome): void
    {
        $this->counts[$event]++;
        $fields = self::of($outcome->job) + ['seconds' => round($outcome->seconds, 3)];
        $why = ['reason' => $outcome->reason, 'error' => $outcome->error];
        $this->event("job.$event", $event === 'finished' ? $fields : $fields + $why);
    }

    /** @param string $reason as Job::lost() returns it */
    public function lost(Outcome $outcome, string $reason): void
    {
        $this->counts['lost']++;
        $fields = self::of($outcome->job) + ['seconds' => round($outcome->seconds, 3), 'reason' => $reason];
        $this->event($reason === 'expired' ? 'job.expired' : 'job.lost', $fields);
    }

    /** Reports a heartbeat if it is due. @param int $running the number of running handlers */
    public function heartbeat(int $running): void
    {
        $now = Clock::now();
        if ($this->heartbeat_s > 0.0 && $now >= $this->nextBeat) {
            $this->nextBeat = $now + $this->heartbeat_s;
            $gone = $this->goneSince === null ? [] : ['service_lost_s' => round($now - $this->goneSince, 3)];
            $this->worker('heartbeat', ['running' => $running] + $this->counts + $gone);
        }
    }

    public function serviceLost(string $reason): void
    {
        if ($this->goneSince === null) {
            $this->goneSince = Clock::now();
            $this->event('service.lost', ['reason' => $reason]);
        }
    }

    public function serviceBack(): void
    {
        if ($this->goneSince !== null) {
            $seconds = round(Clock::now() - $this->goneSince, 3);
            $this->goneSince = null;
            $this->event('service.back', ['seconds' => $seconds]);
        }
    }

    /** @return array<string, mixed> the fields of every job event */
    private static function of(Job $job): array
    {
        $trace = $job->trace_id === null ? [] : ['trace_id' => $job->trace_id];
        return ['topic' => $job->topic, 'id' => $job->id, 'attempt' => $job->attempt] + $trace;
    }
}
