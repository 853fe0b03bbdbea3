<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

/**
 * An HTTP response.
 *
 * @internal
 */
final class Response
{
    /** @param float|null $retry_after the seconds in the header Retry-After, or null if it was not sent */
    public function __construct(
        public readonly int $status,
        public readonly string $body,
        public readonly ?float $retry_after,
    ) {
    }
}
