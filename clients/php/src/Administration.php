<?php

declare(strict_types=1);

namespace JobQueue\Client;

/**
 * The client's methods for topics, workers, actions and tokens.
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
     * The statistics of one topic, or of all topics together.
     *
     * @return Answer
     */
    public function stats(?string $topic = null): array
    {
        return $this->send('stats', ['topic' => $topic]);
    }

    /**
     * Who polls, a topic or any, and with how many jobs in hand.
     *
     * @return Answer with `workers`
     */
    public function workers(?string $topic = null): array
    {
        return $this->send('workers', ['topic' => $topic]);
    }

    /**
     * Let pops of a topic find nothing, for $seconds or until it is resumed.
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
     * @param string|null $state delayed, ready, reserved or dead; null: all
     * @return Answer repeat with its `cursor` until that is null
     */
    public function purge(string $topic, ?string $state = null, ?string $cursor = null): array
    {
        return $this->send('purge', ['topic' => $topic, 'state' => $state, 'cursor' => $cursor]);
    }

    /**
     * What people and operators did, the newest first.
     *
     * @param int|float|null $since unix seconds; null: all that is kept
     * @param string|null $by who did it; null: anybody
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
     * @param string $action create, list, show, revoke, rotate or test; docs/protocol.md says which fields each takes
     * @param string|null $id the 8 characters of the token that are no secret
     * @param list<string>|null $rights
     * @param list<string>|null $topics patterns with `*` and `?`; null: all topics
     * @param int|float|string|null $expires unix seconds, RFC 3339 text, or `never`; null: in 90 days
     * @param int|null $rate commands a second
     * @param int|null $bytes of bodies, a second
     * @param int|float|null $keep seconds for which the old secret holds, too
     * @param string|null $right what is tested: whether it may do this
     * @param string|null $topic and reach this topic
     * @return Answer of create and rotate: the only place that shows the `token`
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
