<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use JobQueue\Client\Exception\RefusedException;

/**
 * Why a worker no longer owns a job, as Job::lost() returns it.
 *
 * @internal
 */
final class Loss
{
    /** The reason, given the refusal of a command with the job's lease; null if the job is not lost. */
    public static function reason(RefusedException $refusal): ?string
    {
        return match ($refusal->error_code) {
            'NOT_FOUND' => 'deleted',
            'STALE_LEASE' => 'stale',
            'NOT_RESERVED' => $refusal->state === 'finished' ? 'stale' : 'expired',
            default => null,
        };
    }
}
