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
    /** When it is to be touched next. */
    public float $touchAt;
    /** The end of its lease. */
    public float $until;
    public bool $lost = false;

    /**
     * @param float $since the beginning of its lease
     * @param float $keepUntil it is not touched after that
     */
    public function __construct(
        public readonly string $id,
        public readonly int $lease,
        private readonly float $ttr,
        float $since,
        private readonly float $keepUntil,
    ) {
        $this->renewed($since);
    }

    public function renewed(float $since): void
    {
        $this->until = $this->hasLease() ? $since + $this->ttr : INF;
        $touchAt = $since + $this->ttr / 3;
        $this->touchAt = $this->hasLease() && $touchAt <= $this->keepUntil ? $touchAt : INF;
    }

    public function notRenewed(float $now): void
    {
        $this->touchAt = $now + min(1.0, $this->ttr / 10);
    }

    public function lose(): void
    {
        $this->lost = true;
        $this->touchAt = INF;
        $this->until = INF;
    }

    public function hasLease(): bool
    {
        return $this->ttr > 0.0;
    }
}
