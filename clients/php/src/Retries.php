<?php

declare(strict_types=1);

namespace JobQueue\Client;

use JobQueue\Client\Exception\AlreadyExistsException;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Exception\ShuttingDownException;
use JobQueue\Client\Exception\UnreachableException;
use JobQueue\Client\Http\Route;

/**
 * Retries: which failures are temporary, which commands are safe to repeat, and the pauses between attempts.
 *
 * @internal
 */
final class Retries
{
    /** Temporary refusals of a command that was not executed; after UNAVAILABLE, it may have been. */
    private const NOT_EXECUTED = ['TOPIC_FULL', 'TOO_FAST', 'NO_ROOM', 'SHUTTING_DOWN'];
    private const PROXY_ERRORS = [502, 503, 504];
    private const SAFE = [
        'schedule', 'unschedule', 'schedules', 'forecast', 'find', 'instances', 'health', 'settings', 'figures',
        'finish', 'delete', 'get', 'explain', 'stats', 'peek', 'topics', 'workers', 'pause', 'resume', 'leave', 'whoami', 'actions',
    ];
    private const SAFE_OPERATIONS = ['plan', 'get', 'list']; // a second plan is forgotten when nobody starts it
    private const SAFE_WITH_LEASE = ['touch', 'release', 'bury'];

    /** Whether an earlier attempt may have been executed. */
    public bool $uncertain = false;

    private int $pauses = 0;
    private ?float $end = null;

    /** @param float $seconds for which to retry after the first failure */
    public function __construct(public readonly Route $route, private readonly float $seconds)
    {
    }

    /** Whether the address was at fault, so that another one may answer. */
    public static function isAway(JobQueueException $error): bool
    {
        return $error instanceof UnreachableException
            ? $error->status === null || in_array($error->status, self::PROXY_ERRORS, true)
            : $error instanceof ShuttingDownException;
    }

    /** Whether a failure is temporary and a retry does no harm. @param bool $safe the command may be executed twice */
    public static function mayHelp(JobQueueException $error, bool $safe): bool
    {
        if ($error instanceof UnreachableException) {
            return self::isAway($error) && ($safe || !$error->maybe_done);
        }
        assert($error instanceof RefusedException);
        return in_array($error->error_code, self::NOT_EXECUTED, true) || ($safe && $error->error_code === 'UNAVAILABLE');
    }

    /**
     * Whether executing a command twice does no harm.
     *
     * @param array<string, mixed> $command
     */
    public static function isSafe(array $command): bool
    {
        $name = $command['command'] ?? null;
        if ($name === 'add') {
            // If the service does not remember the ended job, a repeated add would create it a second time.
            return isset($command['id']) && ($command['if_exists'] ?? 'keep') === 'keep'
                && ($command['retention'] ?? 1) > 0;
        }
        if ($name === 'operation') {
            return in_array($command['do'] ?? null, self::SAFE_OPERATIONS, true);
        }
        return in_array($name, self::SAFE, true)
            || (in_array($name, self::SAFE_WITH_LEASE, true) && isset($command['lease']));
    }

    /**
     * Returns success for an add that was repeated because it may have been executed, and that found the job dead: an
     * earlier attempt probably created the job. Any other result of a command is returned as it is.
     *
     * @template Result
     * @param array<string, mixed> $command
     * @param Result $result
     * @return Result|array<string, mixed>
     */
    public static function foundDead(array $command, mixed $result): mixed
    {
        $isDead = ($command['command'] ?? null) === 'add'
            && $result instanceof AlreadyExistsException && $result->state === 'dead';
        return $isDead
            ? ['success' => true, 'id' => $command['id'] ?? '', 'state' => 'dead', 'result' => 'existing']
            : $result;
    }

    /** Sleeps before an attempt unless it goes to another address; returns false at once if it would be too late. */
    public function pause(JobQueueException $error): bool
    {
        $now = Clock::now();
        $this->end ??= $now + $this->seconds;
        if ($this->route->hasAnother($error)) {
            return true;
        }
        $wake = $now + self::length(++$this->pauses, $error->retry_after);
        if ($wake >= $this->end) {
            return false;
        }
        while (($left = $wake - Clock::now()) > 0) {
            usleep((int) ceil($left * 1e6)); // a signal ends the sleep early
        }
        return true;
    }

    /** Seconds before the $n-th retry, $n from 1: random, on top of a Retry-After, so that clients spread out. */
    public static function length(int $n, ?float $retryAfter): float
    {
        $most = min(2.0, 0.05 * 2 ** min($n, 10));
        return ($retryAfter ?? 0.0) + $most * random_int(0, 1_000_000) / 1e6;
    }
}
