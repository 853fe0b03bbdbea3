<?php

declare(strict_types=1);

namespace JobQueue\Client\Symfony;

use InvalidArgumentException;
use JobQueue\Client\Http\Secret;

/**
 * The DSN of a transport: `jobqueue://host:port/topic?ttr=60`, or `jobqueue://:token@host:port/topic`.
 *
 * @internal
 */
final class Dsn
{
    private const DEFAULTS = ['ttr' => 60, 'wait' => 0, 'tls' => false];
    private const NUMBERS = ['timeout_s' => 0, 'connect_timeout_s' => 0, 'retry_for_s' => 0];
    private const OTHERS = [
        'headers' => 0, 'token' => 0, 'token_file' => 0, 'ca_file' => 0, 'cert_file' => 0, 'key_file' => 0,
    ];

    /** @var list<string> the addresses of the service's instances */
    public readonly array $urls;
    public readonly string $topic;
    /** Seconds until a message whose worker died is delivered again. */
    public readonly float $ttr;
    /** Seconds for which get() waits for a message. */
    public readonly float $wait;
    /** @var Secret<array<string, mixed>> options of the client */
    public readonly Secret $client;

    /**
     * @param array<string, mixed> $options of the transport; options in the DSN take precedence
     * @throws InvalidArgumentException
     */
    public function __construct(#[\SensitiveParameter] string $dsn, #[\SensitiveParameter] array $options)
    {
        if (preg_match('~^jobqueue://(?::([^@/?#]+)@)?([^/?#]+)(/[^?#]*)?(?:\?([^#]*))?$~D', $dsn, $parts) !== 1) {
            throw new InvalidArgumentException('the DSN must be like jobqueue://localhost:8000/topic?ttr=60');
        }
        [, $password, $hosts] = $parts;
        parse_str($parts[4] ?? '', $query);
        $query += $password === '' ? [] : ['token' => rawurldecode($password)];
        $options = $query + array_diff_key($options, ['transport_name' => 0]) + self::DEFAULTS;
        if ($unknown = array_diff_key($options, self::DEFAULTS, self::NUMBERS, self::OTHERS)) {
            $known = implode(', ', array_keys(self::DEFAULTS + self::NUMBERS + self::OTHERS));
            throw new InvalidArgumentException('unknown option ' . key($unknown) . "; the options are $known");
        }
        $path = trim($parts[3] ?? '', '/');
        $prefix = trim(dirname("/$path"), '/');
        $scheme = filter_var($options['tls'], FILTER_VALIDATE_BOOL) ? 'https' : 'http';
        $this->urls = array_map(
            static fn (string $host): string => rtrim("$scheme://$host/$prefix", '/'),
            explode(',', $hosts),
        );
        $this->topic = $path === '' ? 'messages' : rawurldecode(basename($path));
        [$this->ttr, $this->wait] = [(float) $options['ttr'], (float) $options['wait']];
        $numbers = array_map(floatval(...), array_intersect_key($options, self::NUMBERS));
        $this->client = new Secret($numbers + array_intersect_key($options, self::OTHERS));
    }
}
