<?php

declare(strict_types=1);

namespace JobQueue\Client;

/**
 * What came back over HTTP.
 *
 * @internal
 */
final class Response
{
    /** @param float|null $retry_after seconds, where the header Retry-After came */
    public function __construct(
        public readonly int $status,
        public readonly string $body,
        public readonly ?float $retry_after,
    ) {
    }
}
