<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

use JobQueue\Client\Options;

/**
 * The addresses of the service, in a random order, so that many clients spread their load.
 *
 * @internal
 */
final class Addresses
{
    /** @var non-empty-list<Address> */
    private array $all;

    /**
     * @param non-empty-list<string> $urls
     * @param array<string, string> $headers sent with each request
     */
    public function __construct(
        #[\SensitiveParameter] array $urls,
        float $timeout_s,
        float $connect_timeout_s,
        #[\SensitiveParameter] array $headers,
        Token $token,
        Certificates $certificates,
    ) {
        shuffle($urls);
        $headers = new Secret($headers);
        $address = static fn (#[\SensitiveParameter] string $url): Address => new Address(
            Options::withoutPassword($url),
            new Transport(
                new Secret(rtrim($url, '/') . '/command'),
                $timeout_s,
                $connect_timeout_s,
                $headers,
                $token,
                $certificates,
            ),
        );
        $this->all = array_map($address, $urls);
    }

    public function __clone(): void
    {
        $this->all = array_map(static fn (Address $address): Address => clone $address, $this->all);
    }

    /** The route of a request: for its first attempt and its retries. */
    public function route(): Route
    {
        return new Route($this->all);
    }
}
