<?php

declare(strict_types=1);

namespace JobQueue\Client;

/** A handler throws this to have its job delivered again later. */
final class Retry extends \Exception
{
    private const TEN_YEARS_S = 315_360_000;

    /**
     * @param int|float|null $after seconds, 0 to 10 years; null: the next step of the job's back-off
     * @param bool $attempt false: this delivery does not count as a try
     * @param string|null $reason kept with the job, cut to 1,000 characters
     * @throws \InvalidArgumentException if $after is out of range; the job then fails, as with any other error
     */
    public function __construct(
        public readonly int|float|null $after = null,
        public readonly bool $attempt = true,
        public readonly ?string $reason = null,
    ) {
        if ($after !== null && !($after >= 0 && $after <= self::TEN_YEARS_S)) {
            $most = self::TEN_YEARS_S;
            throw new \InvalidArgumentException("after must be a number of seconds from 0 to $most, not $after");
        }
        parent::__construct($reason ?? 'again');
    }
}
