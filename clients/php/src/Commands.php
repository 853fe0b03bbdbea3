<?php

declare(strict_types=1);

namespace JobQueue\Client;

/**
 * Makes commands in the form of the protocol from the arguments of PHP, for the client and for the outbox.
 *
 * @internal
 */
final class Commands
{
    /**
     * @param array<string, mixed> $fields with `delay` and `if_exists`
     * @return array<string, mixed>
     * @throws \TypeError if the delay has another type; or if there is no body
     */
    public static function add(array $fields, mixed $body): array
    {
        Times::check($fields['delay']);
        if ($body === Body::Unchanged && !in_array($fields['if_exists'], ['later', 'sooner'], true)) {
            throw new \ArgumentCountError('add() needs a body, except with if_exists later or sooner');
        }
        return self::command('add', $fields, $body);
    }

    /**
     * @param array<string, mixed> $fields those that are null are left out
     * @return array<string, mixed>
     */
    public static function command(string $name, array $fields, mixed $body = Body::Unchanged): array
    {
        $given = array_filter($fields, static fn (mixed $value): bool => $value !== null);
        if (is_array($given['headers'] ?? null)) {
            $given['headers'] = (object) $given['headers']; // also an empty array is an object in JSON
        }
        $command = ['command' => $name] + Times::sent($given);
        return $body === Body::Unchanged ? $command : $command + ['body' => $body];
    }
}
