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
    /** RFC 3339 with its offset, in the forms that the service accepts. */
    private const TIME = '/^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)$/D';
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

    /**
     * When the job of a command is due, by the clock of this machine, in unix seconds; null if the command does not say.
     *
     * @param array<string, mixed> $command as sent() returns it
     * @throws \InvalidArgumentException if `at` is not a time, or if there is a delay, too
     */
    public static function due(array $command): ?float
    {
        if (!isset($command['at'])) {
            return isset($command['delay']) ? microtime(true) + $command['delay'] : null;
        }
        if (isset($command['delay'])) {
            throw new \InvalidArgumentException('delay and at exclude each other');
        }
        return is_string($command['at']) ? self::unix($command['at']) : (float) $command['at'];
    }

    /** @throws \InvalidArgumentException */
    private static function unix(string $time): float
    {
        $moment = preg_match(self::TIME, $time) === 1 ? date_create_immutable($time) : false;
        // PHP takes February 30 as March 2, with a warning.
        if ($moment === false || (DateTimeImmutable::getLastErrors()['warning_count'] ?? 0) > 0) {
            $form = 'unix seconds or an RFC 3339 time with its offset, such as 2026-11-23T09:00:00+01:00';
            throw new \InvalidArgumentException("at must be $form, not '$time'");
        }
        return (float) $moment->format('U.u');
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
