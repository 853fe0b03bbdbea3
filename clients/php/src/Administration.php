<?php

declare(strict_types=1);

namespace JobQueue\Client;

use DateTimeInterface;

/**
 * The client's methods for topics, workers, operations, actions and tokens.
 *
 * @internal
 *
 * @phpstan-type Answer array<string, mixed>
 */
trait Administration
{
    /**
     * List topics with their counts.
     *
     * @param string|null $pattern with `*` for any characters and ? for one
     * @return Answer with `topics`, and a `cursor` while there may be more
     */
    public function topics(?string $pattern = null, ?string $cursor = null): array
    {
        return $this->send('topics', ['pattern' => $pattern, 'cursor' => $cursor]);
    }

    /**
     * List jobs of a topic whose ids begin with a prefix, without their bodies; without a topic, begin a search of all
     * jobs in the background.
     *
     * @param string|null $state delayed, ready, reserved or dead; null for all
     * @return Answer with `jobs`, and a `cursor` while there may be more, even after an empty page; without a topic,
     *     with `operation`: operation() with get lists what it has found
     */
    public function find(
        string $prefix,
        ?string $topic = null,
        ?string $state = null,
        ?string $cursor = null,
        ?int $count = null,
    ): array {
        $fields = ['prefix' => $prefix, 'topic' => $topic, 'state' => $state, 'cursor' => $cursor, 'count' => $count];
        return $this->send('find', $fields);
    }

    /**
     * The statistics of one topic, or of all topics together.
     *
     * @return Answer
     */
    public function stats(?string $topic = null): array
    {
        return $this->send('stats', ['topic' => $topic]);
    }

    /**
     * How many jobs fall due when in the next hours (1 to 744, 24 by default), including jobs that schedules will add,
     * for one topic or for all topics together.
     *
     * @return Answer with `bins`
     */
    public function forecast(?string $topic = null, ?int $hours = null): array
    {
        return $this->send('forecast', ['topic' => $topic, 'hours' => $hours]);
    }

    /**
     * Rates and lateness over time, across all instances, for one topic or for all topics together.
     *
     * @param DateTimeInterface|int|float|string|null $since a time, unix seconds, or RFC 3339 text; null for an hour
     *     before $until
     * @param DateTimeInterface|int|float|string|null $until likewise; null for now
     * @param int|null $step the width of a bin in seconds, a multiple of 60; null for 60
     * @return Answer with `bins`
     */
    public function figures(
        ?string $topic = null,
        DateTimeInterface|int|float|string|null $since = null,
        DateTimeInterface|int|float|string|null $until = null,
        ?int $step = null,
    ): array {
        return $this->send('figures', ['topic' => $topic, 'since' => $since, 'until' => $until, 'step' => $step]);
    }

    /**
     * The workers that poll a topic, or any topic, and how many jobs each of them has.
     *
     * @return Answer with `workers`
     */
    public function workers(?string $topic = null): array
    {
        return $this->send('workers', ['topic' => $topic]);
    }

    /**
     * The processes of the service: where each runs, its version, and the timers that it holds.
     *
     * @return Answer with `instances`
     */
    public function instances(): array
    {
        return $this->send('instances', []);
    }

    /**
     * What is wrong with the service, or may become so.
     *
     * @return Answer with `findings`
     */
    public function health(): array
    {
        return $this->send('health', []);
    }

    /**
     * Make pops of a topic find nothing, for $seconds or until the topic is resumed.
     *
     * @return Answer
     */
    public function pause(string $topic, int|float|null $seconds = null): array
    {
        return $this->send('pause', ['topic' => $topic, 'seconds' => $seconds]);
    }

    /**
     * End the pause of a topic.
     *
     * @return Answer
     */
    public function resume(string $topic): array
    {
        return $this->send('resume', ['topic' => $topic]);
    }

    /**
     * Delete the jobs that a topic has now.
     *
     * @param string|null $state delayed, ready, reserved or dead; null for all
     * @return Answer with a `cursor`: repeat the call with it until it is null
     */
    public function purge(string $topic, ?string $state = null, ?string $cursor = null): array
    {
        return $this->send('purge', ['topic' => $topic, 'state' => $state, 'cursor' => $cursor]);
    }

    /**
     * Change all jobs that match a filter, in the background: plan, start, pause, resume, cancel, get or list
     * operations.
     *
     * @param string $do plan, start, pause, resume, cancel, get or list; docs/protocol.md says which fields each needs
     * @param string|null $kind kick, delete, run, reschedule or find
     * @param array<string, mixed>|null $filter which jobs to change; its times are like $at
     * @param int|float|null $shift seconds by which a reschedule makes them later, or earlier if below 0
     * @param DateTimeInterface|int|float|string|null $at a time, unix seconds, or RFC 3339 text; instead of $shift
     * @param string|null $plan for start: the id of the plan
     * @param int|null $expect for start: the `count` of the plan
     * @param int|null $rate jobs a second
     * @param string|null $operation the id of the operation, which is that of its plan
     * @return Answer of plan with `plan`, the id for start; of list with `operations`
     */
    public function operation(
        string $do,
        ?string $kind = null,
        ?array $filter = null,
        int|float|null $shift = null,
        DateTimeInterface|int|float|string|null $at = null,
        int|float|null $spread = null,
        ?string $plan = null,
        ?int $expect = null,
        ?int $rate = null,
        ?string $operation = null,
    ): array {
        $fields = ['do' => $do, 'kind' => $kind, 'filter' => $filter, 'shift' => $shift, 'at' => $at];
        $fields += ['spread' => $spread, 'plan' => $plan, 'expect' => $expect, 'rate' => $rate];
        return $this->send('operation', $fields + ['operation' => $operation]);
    }

    /**
     * What people and operators did, the newest first.
     *
     * @param int|float|null $since unix seconds; null for all that is kept
     * @param string|null $by the name of who did it; null for anybody
     * @return Answer with `actions`, and a `cursor` while there may be more
     */
    public function actions(
        int|float|null $since = null,
        ?string $by = null,
        ?string $cursor = null,
        ?int $count = null,
    ): array {
        return $this->send('actions', ['since' => $since, 'by' => $by, 'cursor' => $cursor, 'count' => $count]);
    }

    /**
     * The settings of the service, and where each came from; a secret is `set` or `not set`.
     *
     * @return Answer with `settings`, `policies` and `virtual_topics`
     */
    public function settings(): array
    {
        return $this->send('settings', []);
    }

    /**
     * What the token of this client may do, and until when.
     *
     * @return Answer
     */
    public function whoami(): array
    {
        return $this->send('whoami', []);
    }

    /**
     * Create, list, show, revoke, rotate or test tokens.
     *
     * @param string $action create, list, show, revoke, rotate or test; docs/protocol.md says which fields each needs
     * @param string|null $id the 8 characters of the token that are not secret
     * @param list<string>|null $rights
     * @param list<string>|null $topics patterns with `*` and `?`; null for all topics
     * @param int|float|string|null $expires unix seconds, RFC 3339 text, or `never`; null for in 90 days
     * @param int|null $rate commands a second
     * @param int|null $bytes bytes of bodies a second
     * @param int|float|null $keep seconds for which the old secret stays valid, too
     * @param string|null $right for test: the right to check
     * @param string|null $topic for test: the topic to check
     * @return Answer of create and rotate with the `token`, which is shown nowhere else
     */
    public function token(
        string $action,
        ?string $id = null,
        ?string $name = null,
        ?array $rights = null,
        ?array $topics = null,
        int|float|string|null $expires = null,
        ?int $rate = null,
        ?int $burst = null,
        ?int $bytes = null,
        ?int $waits = null,
        ?bool $own_ids = null,
        ?string $certificate = null,
        int|float|null $keep = null,
        ?string $right = null,
        ?string $topic = null,
    ): array {
        $fields = ['action' => $action, 'id' => $id, 'name' => $name, 'rights' => $rights, 'topics' => $topics];
        $fields += ['expires' => $expires, 'rate' => $rate, 'burst' => $burst, 'bytes' => $bytes, 'waits' => $waits];
        $fields += ['own_ids' => $own_ids, 'certificate' => $certificate, 'keep' => $keep];
        return $this->send('token', $fields + ['right' => $right, 'topic' => $topic]);
    }
}
