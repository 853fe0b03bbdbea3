<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use Closure;
use JobQueue\Client\Clock;

/**
 * The report of a worker: events for its hook, and log lines.
 *
 * @internal
 */
final class Report
{
    /** Events of every job: the heartbeat counts them instead. */
    private const NOT_LOGGED = ['job.started', 'job.finished', 'job.retried'];

    /** @var array<string, int> */
    private array $counts = ['finished' => 0, 'failed' => 0, 'retried' => 0, 'buried' => 0, 'lost' => 0];
    private float $nextBeat;
    private ?float $goneSince = null;

    /**
     * @param float $heartbeat_s 0: none
     * @param (Closure(string, array<string, mixed>): mixed)|null $on_event
     * @param Closure(string): mixed $log receives one line
     */
    public function __construct(
        private readonly string $worker,
        private readonly float $heartbeat_s,
        private readonly ?Closure $on_event,
        private readonly Closure $log,
    ) {
        $this->nextBeat = Clock::now() + $heartbeat_s;
    }

    /** @param array<string, mixed> $fields */
    public function event(string $name, array $fields): void
    {
        if (!in_array($name, self::NOT_LOGGED, true)) {
            $this->log($name, $fields);
        }
        try {
            $this->on_event !== null && ($this->on_event)($name, $fields);
        } catch (\Throwable $error) {
            $this->log('hook.failed', ['event' => $name, 'reason' => $error->getMessage()]);
        }
    }

    public function worker(string $event): void
    {
        $this->event("worker.$event", ['worker' => $this->worker]);
    }

    public function ended(string $event, Outcome $outcome, ?string $reason): void
    {
        $this->counts[$event]++;
        $job = $outcome->job;
        $fields = ['topic' => $job->topic, 'id' => $job->id, 'seconds' => round($outcome->seconds, 3)];
        $this->event("job.$event", $event === 'finished' ? $fields : $fields + ['reason' => $reason]);
    }

    /** Reports a heartbeat if it is due. @param int $running the number of running handlers */
    public function heartbeat(int $running): void
    {
        $now = Clock::now();
        if ($this->heartbeat_s > 0.0 && $now >= $this->nextBeat) {
            $this->nextBeat = $now + $this->heartbeat_s;
            $this->event('worker.heartbeat', ['worker' => $this->worker, 'running' => $running] + $this->counts);
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

    /** @param array<string, mixed> $fields */
    private function log(string $name, array $fields): void
    {
        $line = gmdate('Y-m-d\TH:i:s\Z') . " $name";
        foreach ($fields as $field => $value) {
            $line .= " $field=" . json_encode($value, JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES);
        }
        try {
            ($this->log)($line);
        } catch (\Throwable $error) {
            error_log("$line (the log failed: {$error->getMessage()})");
        }
    }
}
