<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Retries;

/**
 * The addresses of one request and its retries: each attempt goes to an address that is not skipped, preferably one
 * that has not failed this request yet.
 *
 * @internal
 */
final class Route
{
    /** @var array<int, int> the number of the last attempt at each address, by its place */
    private array $tried = [];
    private int $attempts = 0;
    private ?Address $last = null;

    /** @param non-empty-list<Address> $all in the order in which they are preferred */
    public function __construct(private readonly array $all)
    {
    }

    /** The address of the next attempt. */
    public function next(): Address
    {
        $ranks = [];
        foreach ($this->all as $place => $address) {
            $out = $address->outFor();
            $ranks[$place] = [$out > 0.0, $this->tried[$place] ?? 0, $out, $place];
        }
        $best = min($ranks)[3];
        $this->tried[$best] = ++$this->attempts;
        return $this->last = $this->all[$best];
    }

    /** The caller gave up the last attempt, because its address did not answer in time. */
    public function gaveUp(): void
    {
        $this->last?->failed();
    }

    /** Whether the next attempt needs no pause, as the address was at fault and another one has not been tried yet. */
    public function hasAnother(JobQueueException $error): bool
    {
        return Retries::isAway($error) && count($this->tried) < count($this->all);
    }
}
