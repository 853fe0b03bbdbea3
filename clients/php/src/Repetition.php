<?php

declare(strict_types=1);

namespace JobQueue\Client;

use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Exception\UnreachableException;

/**
 * Which commands may be sent again after which failures, and the pauses before that.
 *
 * @internal
 */
final class Repetition
{
    private const REFUSED_FOR_NOW = ['TOPIC_FULL', 'TOO_FAST', 'NO_ROOM', 'SHUTTING_DOWN'];
    private const PROXY_IN_TROUBLE = [502, 503, 504];
    private const SAFE = ['finish', 'delete', 'get', 'stats', 'peek', 'topics', 'pause', 'resume', 'leave'];
    private const SAFE_WITH_LEASE = ['touch', 'release', 'bury'];

    private int $pauses = 0;
    private ?float $end = null;

    /** @param float $seconds how long to go on after the first failure */
    public function __construct(private readonly float $seconds)
    {
    }

    /** Whether $error may be answered by sending the same again. @param bool $safe that does no harm if it was done */
    public static function helps(JobQueueException $error, bool $safe): bool
    {
        if ($error instanceof UnreachableException) {
            $broken = $error->status === null || in_array($error->status, self::PROXY_IN_TROUBLE, true);
            return $broken && ($safe || !$error->maybe_done);
        }
        assert($error instanceof RefusedException);
        return in_array($error->code, self::REFUSED_FOR_NOW, true) || ($safe && $error->code === 'UNAVAILABLE');
    }

    /** @param array<string, mixed> $command */
    public static function safe(array $command): bool
    {
        $name = $command['command'] ?? null;
        if ($name === 'add') {
            // Without a memory of the ended job, an add that comes again would make it a second time.
            return isset($command['id']) && ($command['if_exists'] ?? 'keep') === 'keep'
                && ($command['retention'] ?? 1) > 0;
        }
        return in_array($name, self::SAFE, true)
            || (in_array($name, self::SAFE_WITH_LEASE, true) && isset($command['lease']));
    }

    /** Sleeps before the next repetition; false, at once, where that would end too late. */
    public function pause(?float $retryAfter): bool
    {
        $now = Clock::now();
        $this->end ??= $now + $this->seconds;
        $wake = $now + self::length(++$this->pauses, $retryAfter);
        if ($wake >= $this->end) {
            return false;
        }
        while (($left = $wake - Clock::now()) > 0) {
            usleep((int) ceil($left * 1e6)); // a signal ends it early
        }
        return true;
    }

    /** Seconds before the $n-th repetition, $n from 1: random, so that not all clients come back at once. */
    public static function length(int $n, ?float $retryAfter): float
    {
        $most = min(2.0, 0.05 * 2 ** min($n, 10));
        return max($retryAfter ?? 0.0, $most * random_int(0, 1_000_000) / 1e6);
    }
}
