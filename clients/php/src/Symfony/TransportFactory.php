<?php

declare(strict_types=1);

namespace JobQueue\Client\Symfony;

use JobQueue\Client\Client;
use Symfony\Component\Messenger\Transport\Receiver\KeepaliveReceiverInterface;
use Symfony\Component\Messenger\Transport\Serialization\SerializerInterface;
use Symfony\Component\Messenger\Transport\TransportFactoryInterface;

/** Creates the transport for a DSN such as `jobqueue://localhost:8000/topic`. */
final class TransportFactory implements TransportFactoryInterface
{
    /** @param array<string, mixed> $options */
    public function createTransport(
        #[\SensitiveParameter] string $dsn,
        #[\SensitiveParameter] array $options,
        SerializerInterface $serializer,
    ): Transport {
        $dsn = new Dsn($dsn, $options);
        $client = new Client(...$dsn->client->value(), urls: $dsn->urls);
        // A worker has until the end of the lease to report how a message ended.
        $ends = new Client(...['retry_for_s' => $dsn->ttr] + $dsn->client->value(), urls: $dsn->urls);
        $class = interface_exists(KeepaliveReceiverInterface::class) ? KeptAliveTransport::class : Transport::class;
        return new $class($client, $ends, $serializer, $dsn->topic, $dsn->ttr, $dsn->wait);
    }

    /** @param array<string, mixed> $options */
    public function supports(string $dsn, array $options): bool
    {
        return str_starts_with($dsn, 'jobqueue://');
    }
}
