<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

use CurlHandle;

/**
 * One request in flight: passes its body to curl in pieces, and reads the response headers.
 *
 * It has no reference to the curl handle: a handle that its own callbacks refer to stays open, with its sockets, until
 * PHP collects cycles.
 *
 * @internal
 */
final class Transfer
{
    private int $sent = 0;

    /** The seconds in the header Retry-After, or null if it was not sent. */
    public ?float $retry_after = null;

    public function __construct(private readonly string $body)
    {
    }

    public function piece(CurlHandle $easy, mixed $file, int $length): string
    {
        $piece = substr($this->body, $this->sent, $length);
        $this->sent += strlen($piece);
        return $piece;
    }

    public function header(CurlHandle $easy, string $line): int
    {
        [$name, $value] = explode(':', $line, 2) + [1 => ''];
        if (strcasecmp($name, 'Retry-After') === 0) {
            $this->retry_after = is_numeric(trim($value)) ? (float) $value : null; // a date is ignored
        }
        return strlen($line);
    }

    /** Whether curl has read the whole body; until then, the service cannot have received the request. */
    public function isSent(): bool
    {
        return $this->sent === strlen($this->body);
    }
}
