<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use Closure;
use JobQueue\Client\Clock;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Exception\UnreachableException;
use JobQueue\Client\Exchange;
use JobQueue\Client\Job;
use JobQueue\Client\Repetition;

/**
 * A worker's way to the service, which may go and come: what is sent is sent until it is answered.
 *
 * @internal
 */
final class Service
{
    private const LOOK_S = 0.2;

    /** Whether what was sent last may have been done before the answer that was had. */
    public bool $uncertain = false;

    /** @var array<string, mixed>|null a job with ttr 0 that came beside a refusal for now: it cannot go back */
    private ?array $held = null;

    public function __construct(private readonly Exchange $exchange, private readonly Report $report)
    {
    }

    /**
     * Sends commands until the first of them has more than a refusal for now. The second is a pop; a job with ttr 0 that
     * comes before that is its answer.
     *
     * @param list<array<string, mixed>> $commands
     * @param Closure(): bool $over it is not to be sent again
     * @param Closure(): bool $giveUp as in Transport::post
     * @return list<array<string, mixed>|RefusedException|null> null: it was over, or given up
     * @throws RefusedException that no repetition can help, of all together
     */
    public function answered(array $commands, Closure $over, Closure $giveUp): array
    {
        $this->held = null;
        try {
            $answers = $this->repeated($commands, $over, $giveUp);
        } catch (RefusedException $error) {
            $answers = $this->held === null ? throw $error : [$error];
        }
        return $this->held === null ? $answers ?? [] : [$answers[0] ?? null, $this->held];
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @param Closure(): bool $over
     * @param Closure(): bool $giveUp
     * @return list<array<string, mixed>|RefusedException>|null
     */
    private function repeated(array $commands, Closure $over, Closure $giveUp): ?array
    {
        $this->uncertain = false;
        for ($n = 1; true; $n++) {
            $answers = $this->tried($this->held === null ? $commands : [$commands[0]], $giveUp);
            if ($answers === null) {
                return null;
            }
            if (is_array($answers)) {
                $this->report->serviceBack();
                return $answers;
            }
            $this->report->serviceLost($answers instanceof RefusedException ? $answers->code : $answers->getMessage());
            if (!$this->paused(Repetition::length($n, $answers->retry_after), $over)) {
                return null;
            }
        }
    }

    /**
     * A job that was not begun goes back, and this was no try.
     *
     * @param Closure(): bool $over when it did not go until then, it is handed out again when its TTR is over
     * @throws RefusedException that no repetition can help
     */
    public function giveBack(Job $job, Closure $over): void
    {
        $fields = ['id' => $job->id, 'lease' => $job->lease, 'delay' => 0, 'attempt' => false];
        $answers = $this->repeated([['command' => 'release'] + $fields], $over, $over);
        if (is_array($answers[0] ?? null)) {
            $this->report->event('job.returned', ['topic' => $job->topic, 'id' => $job->id]);
        }
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @param Closure(): bool $giveUp
     * @return list<array<string, mixed>|RefusedException>|JobQueueException|null why it is to be sent again
     */
    private function tried(array $commands, Closure $giveUp): array|JobQueueException|null
    {
        try {
            $answers = $this->exchange->all($commands, $giveUp);
        } catch (UnreachableException $error) {
            $this->uncertain = $this->uncertain || $error->maybe_done;
            return $error;
        } catch (RefusedException $error) {
            return self::forNow($error, $commands[0]['command']) ? $error : throw $error;
        }
        $first = $answers[0] ?? null;
        if (!$first instanceof RefusedException || !self::forNow($first, $commands[0]['command'])) {
            return $answers;
        }
        $uncertain = $this->uncertain || $first->code === 'UNAVAILABLE';
        if (is_array($answers[1] ?? null) && $answers[1]['id'] !== null) {
            // The end of the last job comes first; the next one may wait for long.
            $this->putAside($answers[1], $giveUp);
        }
        $this->uncertain = $uncertain; // of the end, and not of the other job's release
        return $first;
    }

    /**
     * @param array<string, mixed> $answer
     * @param Closure(): bool $giveUp
     */
    private function putAside(array $answer, Closure $giveUp): void
    {
        $job = Job::fromAnswer($answer);
        if ($job->ttr > 0.0) {
            $this->giveBack($job, $giveUp);
        } else {
            $this->held = $answer;
        }
    }

    private static function forNow(RefusedException $refusal, string $command): bool
    {
        // A bug that one job's end meets must not hold the worker for ever; a poll has nothing better to do.
        return Repetition::helps($refusal, safe: true) || ($refusal->code === 'INTERNAL' && $command === 'pop');
    }

    /** @param Closure(): bool $over */
    private function paused(float $seconds, Closure $over): bool
    {
        $end = Clock::now() + $seconds;
        while (($left = $end - Clock::now()) > 0.0) {
            if ($over()) {
                return false;
            }
            usleep((int) ceil(min($left, self::LOOK_S) * 1e6));
        }
        return !$over();
    }
}
