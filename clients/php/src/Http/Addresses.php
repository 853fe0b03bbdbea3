<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

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
    public function __construct(array $urls, float $timeout_s, float $connect_timeout_s, array $headers)
    {
        shuffle($urls);
        $this->all = array_map(static function (string $url) use ($timeout_s, $connect_timeout_s, $headers): Address {
            $path = rtrim($url, '/') . '/command';
            return new Address($url, new Transport($path, $timeout_s, $connect_timeout_s, $headers));
        }, $urls);
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
