<?php

declare(strict_types=1);

namespace JobQueue\Client;

use DateTimeInterface;

/**
 * The client's methods for schedules.
 *
 * @internal
 *
 * @phpstan-type Answer array<string, mixed>
 */
trait Scheduling
{
    /**
     * Add a job repeatedly: every $every seconds, or by $cron. Sending the same definition again changes nothing.
     *
     * @param string $name unique among the schedules; an occurrence is the job `<name>@<unix ms>`
     * @param mixed $body of each occurrence, as in add()
     * @param int|float|null $every seconds from one occurrence to the next
     * @param string|null $cron minute, hour, day of the month, month, day of the week: `0 9 * * MON-FRI`
     * @param string|null $zone the time zone of $cron, such as Europe/Berlin; null for UTC
     * @param DateTimeInterface|int|float|string|null $start the time from which $every counts: a time, unix seconds, or
     *     RFC 3339 text; null for now
     * @param int|float|null $jitter the most seconds by which an occurrence is due later
     * @param string|null $catch_up none, last or all: which of the occurrences that were missed are still made
     * @param string|null $overlap allow, or skip: makes none while the last one is delayed, ready or reserved
     * @param list<int|float>|string|null $backoff `15,30` is [15, 30]
     * @param array<string, string>|null $headers
     * @param list<string>|null $tags
     * @return Answer with its `result`, and `next`, the time of its next occurrence
     */
    public function schedule(
        string $name,
        string $topic,
        mixed $body,
        int|float|null $every = null,
        ?string $cron = null,
        ?string $zone = null,
        DateTimeInterface|int|float|string|null $start = null,
        int|float|null $jitter = null,
        ?string $catch_up = null,
        ?string $overlap = null,
        ?bool $paused = null,
        int|float|null $ttr = null,
        ?int $priority = null,
        ?int $tries = null,
        mixed $backoff = null,
        int|float|null $ttl = null,
        int|float|null $retention = null,
        mixed $headers = null,
        mixed $tags = null,
        ?string $durability = null,
    ): array {
        $times = ['every' => $every, 'cron' => $cron, 'zone' => $zone, 'start' => $start, 'jitter' => $jitter];
        $fields = [
            'name' => $name,
            'topic' => $topic,
            'catch_up' => $catch_up,
            'overlap' => $overlap,
            'paused' => $paused,
            'ttr' => $ttr,
            'priority' => $priority,
            'tries' => $tries,
            'backoff' => $backoff,
            'ttl' => $ttl,
            'retention' => $retention,
            'headers' => $headers,
            'tags' => $tags,
            'durability' => $durability,
        ];
        return $this->send('schedule', $fields + $times, $body);
    }

    /**
     * Remove a schedule; the jobs that it has added stay.
     *
     * @return Answer with `live`, how many of these jobs are live
     */
    public function unschedule(string $name): array
    {
        return $this->send('unschedule', ['name' => $name]);
    }

    /**
     * List schedules with their next times.
     *
     * @param string|null $pattern with `*` for any characters and ? for one
     * @return Answer with `schedules`, and a `cursor` while there may be more
     */
    public function schedules(?string $pattern = null, ?string $cursor = null): array
    {
        return $this->send('schedules', ['pattern' => $pattern, 'cursor' => $cursor]);
    }
}
