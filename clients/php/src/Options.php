<?php

declare(strict_types=1);

namespace JobQueue\Client;

/**
 * Checks the options of clients and workers: the error names the invalid option.
 *
 * @internal
 */
final class Options
{
    /** @throws \InvalidArgumentException */
    public static function url(string $url): void
    {
        $parts = parse_url($url);
        $scheme = strtolower($parts['scheme'] ?? '');
        $is = in_array($scheme, ['http', 'https'], true) && isset($parts['host'])
            && !isset($parts['query']) && !isset($parts['fragment']) && preg_match('/^[!-~]+$/D', $url) === 1;
        self::must($is, "url must be a service's URL such as http://localhost:8000, not '$url'");
    }

    /** @throws \InvalidArgumentException */
    public static function above0(string $option, float $seconds, float $most = PHP_FLOAT_MAX): void
    {
        $range = $most === PHP_FLOAT_MAX ? '' : " and at most $most";
        self::must($seconds > 0.0 && $seconds <= $most, "$option must be a number of seconds above 0$range");
    }

    /** @throws \InvalidArgumentException */
    public static function from0(string $option, float $seconds): void
    {
        self::must($seconds >= 0.0 && is_finite($seconds), "$option must be a number of seconds of at least 0");
    }

    /**
     * @param array<string, string> $headers
     * @throws \InvalidArgumentException
     */
    public static function headers(array $headers): void
    {
        foreach ($headers as $name => $value) {
            $is = is_string($value) && preg_match('/^[!-9;-~]+:[ -~]*$/D', "$name:$value") === 1;
            self::must($is, "headers must have names and values of printable ASCII: '$name' does not");
        }
    }

    /** @throws \InvalidArgumentException */
    public static function name(string $name): void
    {
        self::must(preg_match('/^.{1,128}$/suD', $name) === 1, 'name must be a UTF-8 string of 1 to 128 characters');
    }

    private static function must(bool $is, string $message): void
    {
        $is || throw new \InvalidArgumentException($message);
    }
}
