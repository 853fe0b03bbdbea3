<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

use JobQueue\Client\Clock;

/**
 * One address of the service, and whether it is skipped. A clone has a connection of its own.
 *
 * @internal
 */
final class Address
{
    /** Seconds for which the address is skipped after a failure, doubled with each failure in a row. */
    private const OUT_S = 5.0;
    private const LONGEST_OUT_S = 60.0;

    private int $failures = 0;
    private float $outUntil = 0.0;

    public function __construct(public readonly string $url, private Transport $transport)
    {
    }

    public function __clone(): void
    {
        $this->transport = clone $this->transport;
    }

    public function transport(): Transport
    {
        return $this->transport;
    }

    /** For how many more seconds the address is skipped; 0 if it is not. */
    public function outFor(): float
    {
        return max(0.0, $this->outUntil - Clock::now());
    }

    public function answered(): void
    {
        $this->failures = 0;
        $this->outUntil = 0.0;
    }

    public function failed(): void
    {
        $this->outUntil = Clock::now() + min(self::OUT_S * 2 ** min($this->failures++, 10), self::LONGEST_OUT_S);
    }
}
