<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

/**
 * The job whose lease the keeper keeps alive. All times are those of Clock.
 *
 * @internal
 */
final class KeptJob
{
    /** When it is to be looked after next. */
    public float $nextAt;
    /** The end of its lease. */
    public float $until;
    public bool $lost = false;

    /**
     * @param float $ttr seconds; 0: it has no lease
     * @param float $since the beginning of its lease
     * @param float $keepUntil its lease is not kept alive after that
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
            $this->nextAt = min($this->nextAt, $this->until); // the worker hears of the end of the lease in time
        }
    }

    public function lose(): void
    {
        $this->lost = true;
        $this->nextAt = INF;
    }
}
