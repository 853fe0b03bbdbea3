<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use Closure;
use JobQueue\Client\Clock;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Exception\UnauthorizedException;
use JobQueue\Client\Exception\UnreachableException;
use JobQueue\Client\Http\Exchange;
use JobQueue\Client\Http\Route;
use JobQueue\Client\Job;
use JobQueue\Client\Retries;

/**
 * The outbox: sends a worker's commands until they are answered, however long the service is down, unless its token is
 * refused for too long.
 *
 * @internal
 */
final class Outbox
{
    private const LOOK_S = 0.2;

    /** Seconds for which a token may be refused: time to correct it. */
    private const PATIENCE_S = 60.0;

    /** Whether an attempt before the one that was answered last may have been executed. */
    public bool $uncertain = false;

    /** When the last attempt was sent, by Clock. */
    public float $sentAt = 0.0;

    /** @var array<string, mixed>|null a job with ttr 0 that arrived with a temporary refusal: it cannot be released */
    private ?array $held = null;

    /** When the token was refused, by Clock: the first time since the last answer of another kind. */
    private ?float $refusedSince = null;

    public function __construct(private readonly Exchange $exchange, private readonly Report $report)
    {
    }

    /**
     * Sends commands until the first gets an answer other than a temporary refusal. The second, if any, is a pop; if an
     * earlier attempt brings a job with ttr 0, that job is the pop's answer.
     *
     * @param list<array<string, mixed>> $commands
     * @param Closure(): bool $over whether to stop retrying
     * @param Closure(): bool $giveUp as in Transport::post
     * @return list<array<string, mixed>|RefusedException|null> null if stopped or given up
     * @throws RefusedException if the request as a whole was refused and no retry can help
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
        $route = $this->exchange->route();
        for ($pauses = 0; true;) {
            $answers = $this->attempt($this->held === null ? $commands : [$commands[0]], $route, $giveUp);
            if (!$answers instanceof JobQueueException) {
                $answers === null || $this->report->serviceBack();
                return $answers;
            }
            if (!$route->hasAnother($answers)) {
                $this->report->serviceLost($answers->getMessage());
                $commands = self::withoutWait($commands);
                $this->pause(Retries::length(++$pauses, $answers->retry_after), $over);
            }
            if ($over()) {
                return null;
            }
        }
    }

    /**
     * A poll is repeated without its `wait`, so that its answer shows at once that the service is back.
     *
     * @param list<array<string, mixed>> $commands
     * @return list<array<string, mixed>>
     */
    private static function withoutWait(array $commands): array
    {
        return array_map(static fn (array $command): array => array_diff_key($command, ['wait' => 0]), $commands);
    }

    /**
     * Releases a job that was not started; the delivery does not count as a try.
     *
     * @param Closure(): bool $over whether to stop retrying; the job is then delivered again after its TTR
     * @throws RefusedException if no retry can help
     */
    public function giveBack(Job $job, Closure $over): void
    {
        $fields = ['id' => $job->id, 'lease' => $job->lease, 'delay' => 0, 'attempt' => false];
        $answers = $this->repeated([['command' => 'release'] + $fields], $over, $over);
        if (is_array($answers[0] ?? null)) {
            $this->report->returned($job);
        }
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @param Closure(): bool $giveUp
     * @return list<array<string, mixed>|RefusedException>|JobQueueException|null an exception: retry; null if given up
     */
    private function attempt(array $commands, Route $route, Closure $giveUp): array|JobQueueException|null
    {
        $this->sentAt = Clock::now();
        try {
            $answers = $this->exchange->all($commands, $route, $giveUp);
        } catch (UnreachableException $error) {
            $this->uncertain = $this->uncertain || $error->maybe_done;
            return $error;
        } catch (RefusedException $error) {
            return $this->isTemporary($error, $commands[0]['command']) ? $error : throw $error;
        }
        $first = $answers[0] ?? null;
        if (!$first instanceof RefusedException) {
            $this->refusedSince = $first === null ? $this->refusedSince : null;
            return $answers;
        }
        if (!$this->isTemporary($first, $commands[0]['command'])) {
            return $answers;
        }
        $uncertain = $this->uncertain || $first->error_code === 'UNAVAILABLE';
        if (is_array($answers[1] ?? null) && $answers[1]['id'] !== null) {
            // The end of the last job comes first, and may take long: this job must not wait for it.
            $this->putAside($answers[1], $giveUp);
        }
        $this->uncertain = $uncertain; // about the end, not about the release of the other job
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

    private function isTemporary(RefusedException $refusal, string $command): bool
    {
        if ($refusal instanceof UnauthorizedException) {
            $this->refusedSince ??= Clock::now();
            return Clock::now() - $this->refusedSince < self::PATIENCE_S;
        }
        $this->refusedSince = null;
        // A defect of the service must not block a worker on the end of one job; a poll has nothing better to do.
        return Retries::mayHelp($refusal, safe: true) || ($refusal->error_code === 'INTERNAL' && $command === 'pop');
    }

    /** @param Closure(): bool $over ends the pause early */
    private function pause(float $seconds, Closure $over): void
    {
        $end = Clock::now() + $seconds;
        while (($left = $end - Clock::now()) > 0.0 && !$over()) {
            usleep((int) ceil(min($left, self::LOOK_S) * 1e6));
        }
    }
}
