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
    /** @param float|null $retry_after seconds of the header Retry-After, if it was sent */
    public function __construct(
        public readonly int $status,
        public readonly string $body,
        public readonly ?float $retry_after,
    ) {
    }
}
