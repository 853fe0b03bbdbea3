<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use JobQueue\Client\Exception\RefusedException;

/**
 * Why a job is not a worker's own any more, as Job::lost() tells it.
 *
 * @internal
 */
final class Loss
{
    /** What the refusal of a touch or an end, with the lease, says; null: nothing of that kind. */
    public static function reason(RefusedException $refusal): ?string
    {
        return match ($refusal->code) {
            'NOT_FOUND' => 'deleted',
            'STALE_LEASE' => 'stale',
            'NOT_RESERVED' => $refusal->state === 'finished' ? 'stale' : 'expired',
            default => null,
        };
    }
}
