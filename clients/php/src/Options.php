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
    /**
     * The addresses in the options `url` and `urls`.
     *
     * @return non-empty-list<string>
     * @throws \InvalidArgumentException
     */
    public static function urls(#[\SensitiveParameter] mixed $url, #[\SensitiveParameter] mixed $urls): array
    {
        self::must(($url === null) !== ($urls === null), 'give either url or urls, the addresses of one service');
        self::must(!is_array($url), "url is one address; several are urls: ['http://a:8000', 'http://b:8000']");
        self::must($urls === null || (is_array($urls) && $urls !== []), 'urls must be an array of at least one URL');
        foreach ($urls ?? [$url] as $each) {
            self::url($url === null ? 'each of urls' : 'url', $each);
        }
        return array_values(array_unique($urls ?? [$url]));
    }

    private static function url(string $option, #[\SensitiveParameter] mixed $url): void
    {
        $text = is_string($url) ? $url : get_debug_type($url);
        $parts = is_string($url) ? parse_url($url) : false;
        $scheme = strtolower($parts['scheme'] ?? '');
        $is = in_array($scheme, ['http', 'https'], true) && isset($parts['host'])
            && str_starts_with($parts['host'], '[') === str_ends_with($parts['host'], ']')
            && !isset($parts['query']) && !isset($parts['fragment']) && preg_match('/^[!-~]+$/D', $text) === 1;
        $several = str_contains($text, ',');
        $shown = self::withoutPassword($text);
        $hint = $several ? "; several are urls: ['http://a:8000', 'http://b:8000']" : '';
        self::must($is && !$several, "$option must be a service's URL such as http://localhost:8000, not '$shown'$hint");
    }

    /** A URL as messages show it. */
    public static function withoutPassword(#[\SensitiveParameter] string $url): string
    {
        return (string) preg_replace('~//[^/]*@~', '//', $url);
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

    /** @throws \InvalidArgumentException */
    public static function jobs(string $option, int $jobs): void
    {
        self::must($jobs >= 1, "$option must be an integer of at least 1");
    }

    /** @throws \InvalidArgumentException */
    public static function megabytes(string $option, float $megabytes): void
    {
        self::must($megabytes > 0.0 && is_finite($megabytes), "$option must be a number of megabytes above 0");
    }

    /**
     * @param array<string, string> $headers
     * @throws \InvalidArgumentException
     */
    public static function headers(#[\SensitiveParameter] array $headers): void
    {
        foreach ($headers as $name => $value) {
            $is = preg_match('/^[!-9;-~]+$/D', (string) $name) === 1
                && is_string($value) && preg_match('/^[ -~]*$/D', $value) === 1;
            self::must($is, "headers must have names and values of printable ASCII: '$name' does not");
        }
    }

    /**
     * Whether the URLs or the headers contain credentials.
     *
     * @param list<string> $urls
     * @param array<string, string> $headers
     */
    public static function haveCredentials(#[\SensitiveParameter] array $urls, #[\SensitiveParameter] array $headers): bool
    {
        return preg_grep('~^[^/]*//[^/]*@~', $urls) !== []
            || array_key_exists('authorization', array_change_key_case($headers));
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
