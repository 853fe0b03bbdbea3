<?php

declare(strict_types=1);

namespace JobQueue\Client;

use DateInterval;

/** A handler throws this to have its job delivered again later. */
final class Retry extends \Exception
{
    private const TEN_YEARS_S = 315_360_000;

    /** Seconds; null for the next step of the job's back-off. */
    public readonly int|float|null $after;

    /**
     * @param int|float|DateInterval|null $after seconds, or an interval, 0 to 10 years; null for the next step of the
     *                                           job's back-off
     * @param bool $attempt false if this delivery must not count as a try
     * @param string|null $reason kept with the job, cut to 1,000 characters
     * @throws \InvalidArgumentException if $after is out of range; the job then fails, as with any other error
     */
    public function __construct(
        int|float|DateInterval|null $after = null,
        public readonly bool $attempt = true,
        public readonly ?string $reason = null,
    ) {
        $this->after = $after = $after instanceof DateInterval ? Times::seconds($after) : $after;
        if ($after !== null && !($after >= 0 && $after <= self::TEN_YEARS_S)) {
            $most = self::TEN_YEARS_S;
            throw new \InvalidArgumentException("after must be a number of seconds from 0 to $most, not $after");
        }
        parent::__construct($reason ?? 'again');
    }
}
