<?php

declare(strict_types=1);

namespace JobQueue\Client\Testing;

/**
 * The service that the tests of one process share.
 *
 * @internal
 */
final class TestService
{
    private static ?Service $service = null;

    public static function url(): string
    {
        self::$service ??= new Service();
        return self::$service->url;
    }
}
