<?php

declare(strict_types=1);

namespace JobQueue\Client\Symfony;

use InvalidArgumentException;

/**
 * The DSN of a transport: `jobqueue://host:port/topic?ttr=60`.
 *
 * @internal
 */
final class Dsn
{
    private const DEFAULTS = ['ttr' => 60, 'wait' => 0, 'tls' => false];
    private const CLIENT = ['timeout_s' => 0, 'connect_timeout_s' => 0, 'retry_for_s' => 0, 'headers' => 0];

    /** @var list<string> of the instances of the service */
    public readonly array $urls;
    public readonly string $topic;
    /** Seconds until a message whose worker died is delivered again. */
    public readonly float $ttr;
    /** Seconds for which get() waits for a message. */
    public readonly float $wait;
    /** @var array<string, mixed> options of the client */
    public readonly array $client;

    /**
     * @param array<string, mixed> $options of the transport; those of the DSN come first
     * @throws InvalidArgumentException
     */
    public function __construct(string $dsn, array $options)
    {
        if (preg_match('~^jobqueue://([^/?#]+)(/[^?#]*)?(?:\?([^#]*))?$~D', $dsn, $parts) !== 1) {
            throw new InvalidArgumentException('the DSN must be like jobqueue://localhost:8000/topic?ttr=60');
        }
        parse_str($parts[3] ?? '', $query);
        $options = $query + array_diff_key($options, ['transport_name' => 0]) + self::DEFAULTS;
        if ($unknown = array_diff_key($options, self::DEFAULTS, self::CLIENT)) {
            $known = implode(', ', array_keys(self::DEFAULTS + self::CLIENT));
            throw new InvalidArgumentException('unknown option ' . key($unknown) . "; the options are $known");
        }
        $path = trim($parts[2] ?? '', '/');
        $prefix = trim(dirname("/$path"), '/');
        $scheme = filter_var($options['tls'], FILTER_VALIDATE_BOOL) ? 'https' : 'http';
        $this->urls = array_map(
            static fn (string $host): string => rtrim("$scheme://$host/$prefix", '/'),
            explode(',', $parts[1]),
        );
        $this->topic = $path === '' ? 'messages' : rawurldecode(basename($path));
        [$this->ttr, $this->wait] = [(float) $options['ttr'], (float) $options['wait']];
        $number = static fn (mixed $value): mixed => is_array($value) ? $value : (float) $value; // headers are an array
        $this->client = array_map($number, array_intersect_key($options, self::CLIENT));
    }
}
