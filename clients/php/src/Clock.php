<?php

declare(strict_types=1);

namespace JobQueue\Client;

/**
 * A monotonic clock, the same in all processes of a machine.
 *
 * @internal
 */
final class Clock
{
    /** Seconds since an arbitrary moment in the past. */
    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}
