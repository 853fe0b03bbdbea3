<?php

declare(strict_types=1);

namespace JobQueue\Client;

/** A handler throws this to have its job again later. */
final class Retry extends \Exception
{
    /**
     * @param int|float|null $after seconds, 0 to 10 years; null: the next step of the job's back-off
     * @param bool $attempt false: this delivery does not count as a try
     * @param string|null $reason kept with the job; what is beyond 1,000 characters is cut off
     */
    public function __construct(
        public readonly int|float|null $after = null,
        public readonly bool $attempt = true,
        public readonly ?string $reason = null,
    ) {
        parent::__construct($reason ?? 'again');
    }
}
