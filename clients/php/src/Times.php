<?php

declare(strict_types=1);

namespace JobQueue\Client;

use DateInterval;
use DateTimeImmutable;
use DateTimeInterface;

/**
 * Converts times and durations of PHP to those of the protocol.
 *
 * @internal
 */
final class Times
{
    /** A back-off as text, as on the command line and in Spark: `15,30`. */
    private const LADDER = '/^\s*\d+(\.\d+)?\s*(,\s*\d+(\.\d+)?\s*)*$/D';
    private const MOMENTS = [
        'at', 'from', 'start', 'since', 'until',
        'died_from', 'died_to', 'due_from', 'due_to', 'created_from', 'created_to',
    ];

    /** @throws \TypeError unless it is a delay: a parameter's type would let '7' and true pass without strict_types */
    public static function check(mixed $delay): void
    {
        if ($delay !== null && !is_int($delay) && !is_float($delay) && !$delay instanceof DateInterval) {
            $type = get_debug_type($delay);
            $message = "delay must be a number of seconds or a DateInterval, not a $type; the id is a later argument";
            throw new \TypeError($message);
        }
    }

    /**
     * A command with its `delay`, its `backoff` and its times in the form of the protocol.
     *
     * @param array<string, mixed> $command
     * @return array<string, mixed>
     */
    public static function sent(array $command): array
    {
        $command = self::timed($command);
        if (is_array($command['filter'] ?? null)) {
            $command['filter'] = self::timed($command['filter']);
        }
        if (($command['delay'] ?? null) instanceof DateInterval) {
            $command['delay'] = self::seconds($command['delay']);
        }
        if (is_string($command['backoff'] ?? null) && preg_match(self::LADDER, $command['backoff']) === 1) {
            $command['backoff'] = array_map('floatval', explode(',', $command['backoff']));
        }
        return $command;
    }

    /**
     * @param array<string, mixed> $fields
     * @return array<string, mixed>
     */
    private static function timed(array $fields): array
    {
        foreach (self::MOMENTS as $field) {
            if (($fields[$field] ?? null) instanceof DateTimeInterface) {
                $fields[$field] = $fields[$field]->format('Y-m-d\TH:i:s.uP');
            }
        }
        return $fields;
    }

    /** The length of an interval that begins now, so that a month has as many days as the current one. */
    public static function seconds(DateInterval $interval): float
    {
        $now = new DateTimeImmutable('now', new \DateTimeZone('UTC'));
        $end = $now->add($interval);
        $whole = $end->getTimestamp() - $now->getTimestamp();
        return round($whole + ((int) $end->format('u') - (int) $now->format('u')) / 1e6, 6);
    }
}
