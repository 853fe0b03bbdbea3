<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use JobQueue\Client\Clock;

/**
 * The limits of a worker, checked between jobs: once one is reached, the worker stops gracefully.
 *
 * @internal
 */
final class Limits
{
    private readonly float $end;

    /**
     * @param int|null $jobs the limit of handlers that have ended
     * @param float|null $time_s the limit of seconds since the worker started, which is now
     * @param float|null $memory_mb the limit of megabytes (2^20 bytes) of this process in memory
     */
    public function __construct(
        private readonly ?int $jobs,
        ?float $time_s,
        private readonly ?float $memory_mb,
    ) {
        $this->end = $time_s === null ? INF : Clock::now() + $time_s;
    }

    /**
     * The limit that is reached: max_jobs, max_time or memory; null for none. Memory counts only after the first job:
     * otherwise a limit below what PHP itself uses would never let a job run.
     */
    public function reached(int $jobs): ?string
    {
        return match (true) {
            $this->jobs !== null && $jobs >= $this->jobs => 'max_jobs',
            Clock::now() >= $this->end => 'max_time',
            $this->memory_mb !== null && $jobs > 0 && self::memoryMb() > $this->memory_mb => 'memory',
            default => null,
        };
    }

    /** The resident memory, as `ps` shows it; where there is no /proc, what PHP has allocated. */
    private static function memoryMb(): float
    {
        $status = (string) @file_get_contents('/proc/self/status');
        return preg_match('/^VmRSS:\s*(\d+) kB/m', $status, $found) === 1
            ? (int) $found[1] / 1024
            : memory_get_usage(true) / (1 << 20);
    }
}
