<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

/**
 * The lease that the lease keeper keeps alive. All times are those of Clock.
 *
 * @internal
 */
final class Lease
{
    /** When the lease next needs attention. */
    public float $nextAt;
    /** When the lease ends. */
    public float $until;
    public bool $lost = false;

    /**
     * @param float $ttr seconds; 0 if the job has no lease
     * @param float $since when the lease began
     * @param float $keepUntil until when the lease is kept alive
     */
    public function __construct(
        public readonly string $id,
        public readonly int $lease,
        public readonly float $ttr,
        float $since,
        public readonly float $keepUntil,
    ) {
        $this->renewed($since);
    }

    public function renewed(float $since): void
    {
        $this->until = $this->ttr > 0.0 ? $since + $this->ttr : INF;
        $this->nextAt = $this->ttr > 0.0 ? $since + $this->ttr / 3 : INF;
    }

    public function notRenewed(float $now): void
    {
        $this->nextAt = $now + min(1.0, $this->ttr / 10);
        if ($now < $this->until) {
            $this->nextAt = min($this->nextAt, $this->until); // the worker must learn of the lease's end in time
        }
    }

    public function lose(): void
    {
        $this->lost = true;
        $this->nextAt = INF;
    }
}
