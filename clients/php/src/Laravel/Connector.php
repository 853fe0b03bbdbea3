<?php

declare(strict_types=1);

namespace JobQueue\Client\Laravel;

use Illuminate\Queue\Connectors\ConnectorInterface;
use JobQueue\Client\Client;

/** Creates a queue from what config/queue.php says about a connection. */
final class Connector implements ConnectorInterface
{
    /** The options of the client that a connection may have. */
    private const CLIENT = [
        'url' => 0, 'urls' => 0, 'timeout_s' => 0, 'connect_timeout_s' => 0, 'retry_for_s' => 0, 'headers' => 0,
        'token' => 0, 'token_file' => 0, 'ca_file' => 0, 'cert_file' => 0, 'key_file' => 0,
    ];

    /** @param array<string, mixed> $config */
    public function connect(#[\SensitiveParameter] array $config): Queue
    {
        $options = array_intersect_key($config, self::CLIENT);
        $retryAfter = (float) ($config['retry_after'] ?? 90);
        return new Queue(
            new Client(...$options),
            // A worker has until the end of the lease to report how a job ended.
            new Client(...['retry_for_s' => $retryAfter] + $options),
            $config['queue'] ?? 'default',
            $retryAfter,
            (float) ($config['block_for'] ?? 0),
            (bool) ($config['after_commit'] ?? false),
        );
    }
}
