<?php

declare(strict_types=1);

namespace JobQueue\Client;

use CurlHandle;

/**
 * One request on its way, as curl takes it in pieces and gives its answer's headers.
 *
 * It knows nothing of the handle that calls it: a handle that its own functions hold stays open until PHP looks for
 * such circles, and its sockets with it.
 *
 * @internal
 */
final class Transfer
{
    private int $sent = 0;

    /** Seconds, where the header Retry-After came. */
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
            $this->retry_after = is_numeric(trim($value)) ? (float) $value : null; // a date counts as none
        }
        return strlen($line);
    }

    /** Whether curl took all of the body; before that, the service cannot have had a whole request. */
    public function isSent(): bool
    {
        return $this->sent === strlen($this->body);
    }
}
