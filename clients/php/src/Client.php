<?php

declare(strict_types=1);

namespace JobQueue\Client;

use DateInterval;
use DateTimeInterface;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Http\Addresses;
use JobQueue\Client\Http\Certificates;
use JobQueue\Client\Http\Exchange;
use JobQueue\Client\Http\Token;

/**
 * The client: one method for each command of the service.
 *
 * Parameters have the names, ranges and defaults of the protocol (docs/protocol.md); null means that the field is not
 * sent. Each method returns the answer's JSON as an array, and throws RefusedException (the service refused the
 * command), UnreachableException (no answer arrived) or, before anything is sent, JsonException (for a value that JSON
 * cannot represent).
 *
 * @phpstan-type Answer array<string, mixed>
 * @phpstan-type Command array<string, mixed>
 */
final class Client
{
    use Administration;
    use Scheduling;

    private readonly Exchange $exchange;
    private readonly Calls $calls;

    /**
     * @param string|null $url of the service, including its path prefix if it has one: `http://localhost:8000`
     * @param float $timeout_s seconds to wait for an answer, on top of a pop's `wait`
     * @param float $retry_for_s seconds for which to retry after the first failure; 0 turns retries off
     * @param array<string, string> $headers sent with every request, such as a token for a proxy
     * @param bool $objects true: JSON objects in bodies and inside answers become stdClass, so that `{}` and `[]`
     *                      differ; false: they become associative arrays
     * @param list<string>|null $urls instead of $url: several addresses of one service
     * @param string|null $token sent as `Authorization: Bearer …`; null for the token of $token_file, or JOBQUEUE_TOKEN
     * @param string|null $token_file a file that holds the token; it is read again when the token is refused
     * @param string|null $ca_file PEM: the authorities whose certificates are accepted; null for those of the system
     * @param string|null $cert_file PEM: the client's certificate
     * @param string|null $key_file PEM: the key of the client's certificate; null if it is in $cert_file
     * @throws \InvalidArgumentException for an invalid option
     */
    public function __construct(
        #[\SensitiveParameter] mixed $url = null,
        float $timeout_s = 10.0,
        float $connect_timeout_s = 3.0,
        float $retry_for_s = 1.5,
        #[\SensitiveParameter] array $headers = [],
        bool $objects = false,
        #[\SensitiveParameter] ?array $urls = null,
        #[\SensitiveParameter] ?string $token = null,
        ?string $token_file = null,
        ?string $ca_file = null,
        ?string $cert_file = null,
        ?string $key_file = null,
    ) {
        $urls = Options::urls($url, $urls);
        Options::above0('timeout_s', $timeout_s);
        Options::above0('connect_timeout_s', $connect_timeout_s);
        Options::from0('retry_for_s', $retry_for_s);
        Options::headers($headers);
        $token = new Token($token, $token_file, Options::haveCredentials($urls, $headers));
        $files = ['ca_file' => $ca_file, 'cert_file' => $cert_file, 'key_file' => $key_file];
        $certificates = new Certificates($files, $urls);
        $addresses = new Addresses($urls, $timeout_s, $connect_timeout_s, $headers, $token, $certificates);
        $this->exchange = new Exchange($addresses, $objects);
        $tracing = Tracing::find();
        $this->calls = new Calls($this->exchange, $retry_for_s, $tracing === null ? null : new CallSpans($tracing));
    }

    /**
     * Add a job, to be delivered when it is due. `spread`, `ttr`, `backoff`, `ttl` and `retention` are seconds.
     *
     * @param mixed $body JSON; an empty array is `[]`, an empty object is `new stdClass()`; may be left out with
     *                    $if_exists later or sooner: then an existing job keeps its own
     * @param int|float|DateInterval|null $delay seconds, or an interval, until it is due; not a string
     * @param string|null $id sent as it is: the service refuses a number
     * @param DateTimeInterface|int|float|string|null $at a time, unix seconds, or RFC 3339 text
     * @param int|null $priority 0 to 9; 9 comes first
     * @param list<int|float>|string|null $backoff `15,30` is [15, 30]
     * @param string|null $if_exists keep, renew, reject, replace, later or sooner
     * @param array<string, string>|null $headers
     * @param list<string>|null $tags
     * @param string|null $key jobs of a topic with the same key run one after the other
     * @return Answer
     * @throws \TypeError if $delay has another type, as PHP would turn '7' into 7 seconds; or if there is no body
     */
    public function add(
        string $topic,
        mixed $body = Body::Unchanged,
        mixed $delay = null,
        mixed $id = null, // not ?string, which would turn 1001 into '1001'
        DateTimeInterface|int|float|string|null $at = null,
        int|float|null $ttr = null,
        ?int $priority = null,
        ?int $tries = null,
        mixed $backoff = null, // the service checks the types of this, $headers and $tags
        int|float|null $ttl = null,
        int|float|null $retention = null,
        ?string $if_exists = null,
        mixed $headers = null,
        mixed $tags = null,
        ?string $durability = null,
        int|float|null $spread = null,
        ?string $key = null,
    ): array {
        $fields = [
            'topic' => $topic,
            'id' => $id,
            'delay' => $delay,
            'at' => $at,
            'spread' => $spread,
            'ttr' => $ttr,
            'priority' => $priority,
            'tries' => $tries,
            'backoff' => $backoff,
            'ttl' => $ttl,
            'retention' => $retention,
            'if_exists' => $if_exists,
            'key' => $key,
            'headers' => $headers,
            'tags' => $tags,
            'durability' => $durability,
        ];
        return $this->calls->one(Commands::add($fields, $body));
    }

    /**
     * Reserve the next ready job for its time to run.
     *
     * @param string|list<string> $topic one topic, or several in the order in which they are tried
     * @param int|float|null $wait seconds to wait for a job, 60 at most
     * @param int|float|null $ttr seconds, for this delivery; null for the job's own
     * @param string|null $worker the worker's name, 128 characters at most; kept with the job
     * @return Job|null null if there is none
     */
    public function pop(
        string|array $topic,
        int|float|null $wait = null,
        int|float|null $ttr = null,
        ?string $worker = null,
    ): ?Job {
        $fields = ['wait' => $wait, 'ttr' => $ttr, 'worker' => $worker];
        $answer = $this->send('pop', [self::field($topic) => $topic] + $fields);
        return $answer['id'] === null ? null : Job::fromAnswer($answer);
    }

    /**
     * Reserve up to $count ready jobs, 1 to 1,000; otherwise like pop().
     *
     * @param string|list<string> $topic
     * @return list<Job> empty if there is none
     */
    public function popMany(
        string|array $topic,
        int $count,
        int|float|null $wait = null,
        int|float|null $ttr = null,
        ?string $worker = null,
    ): array {
        $fields = ['count' => $count, 'wait' => $wait, 'ttr' => $ttr, 'worker' => $worker];
        $answer = $this->send('pop', [self::field($topic) => $topic] + $fields);
        return array_map(static fn (mixed $job) => Job::fromAnswer((array) $job), $answer['jobs']);
    }

    /**
     * Mark a job as done. A Job includes its lease.
     *
     * @return Answer
     */
    public function finish(Job|string $id, ?int $lease = null, ?string $durability = null): array
    {
        return $this->end('finish', $id, $lease, ['durability' => $durability]);
    }

    /**
     * Renew the lease of a reserved job, counting from now: for $ttr seconds this once, or for as long as before.
     *
     * @return Answer
     */
    public function touch(Job|string $id, ?int $lease = null, int|float|null $ttr = null): array
    {
        return $this->send('touch', self::named($id, $lease) + ['ttr' => $ttr]);
    }

    /**
     * Release a reserved job.
     *
     * @param int|float|DateInterval|null $delay seconds, or an interval; null for the next step of its back-off
     * @param bool|null $attempt false if this delivery must not count as a try
     * @return Answer
     */
    public function release(
        Job|string $id,
        ?int $lease = null,
        int|float|DateInterval|null $delay = null,
        ?bool $attempt = null,
        ?string $reason = null,
    ): array {
        return $this->end('release', $id, $lease, ['delay' => $delay, 'attempt' => $attempt, 'reason' => $reason]);
    }

    /**
     * Make a reserved job a dead letter.
     *
     * @return Answer
     */
    public function bury(Job|string $id, ?int $lease = null, ?string $reason = null): array
    {
        return $this->end('bury', $id, $lease, ['reason' => $reason]);
    }

    /**
     * Cancel a job in any live state.
     *
     * @return Answer with `was`, the state before the delete
     */
    public function delete(string $id, ?string $durability = null): array
    {
        return $this->send('delete', ['id' => $id, 'durability' => $durability]);
    }

    /**
     * Everything the service knows about a job.
     *
     * @return Answer
     */
    public function get(string $id): array
    {
        return $this->send('get', ['id' => $id]);
    }

    /**
     * Why a job is where it is, and what happened to it.
     *
     * @param int|float|string|null $life the life to explain: its number, from 1 on, or its creation time in unix
     *     seconds, or `all`; null for the newest
     * @return Answer
     */
    public function explain(string $id, int|float|string|null $life = null): array
    {
        return $this->send('explain', ['id' => $id, 'life' => $life]);
    }

    /**
     * Make a delayed job due now.
     *
     * @return Answer
     */
    public function run(string $id): array
    {
        return $this->send('run', ['id' => $id]);
    }

    /**
     * Make a dead job ready again.
     *
     * @return Answer
     */
    public function kick(string $id): array
    {
        return $this->send('kick', ['id' => $id]);
    }

    /**
     * Make up to $count dead jobs of a topic ready again.
     *
     * @return Answer
     */
    public function kickTopic(string $topic, ?int $count = null): array
    {
        return $this->send('kick', ['topic' => $topic, 'count' => $count]);
    }

    /**
     * Change a delayed or ready job; fields not given stay as they are. `ttl` is in seconds.
     *
     * @param int|float|DateInterval|null $delay seconds, or an interval
     * @param DateTimeInterface|int|float|string|null $at a time, unix seconds, or RFC 3339 text
     * @param mixed $body the new body; null is a valid one
     * @return Answer
     */
    public function update(
        string $id,
        int|float|DateInterval|null $delay = null,
        DateTimeInterface|int|float|string|null $at = null,
        mixed $body = Body::Unchanged,
        ?int $priority = null,
        int|float|null $ttl = null,
        ?string $durability = null,
    ): array {
        $fields = ['id' => $id, 'delay' => $delay, 'at' => $at, 'priority' => $priority, 'ttl' => $ttl];
        return $this->send('update', $fields + ['durability' => $durability], $body);
    }

    /**
     * List jobs of a topic without reserving them.
     *
     * @param string|null $state delayed, ready, reserved or dead; null for all
     * @param bool|null $body false to leave out the bodies of the jobs
     * @param DateTimeInterface|int|float|string|null $from only delayed, reserved or dead jobs whose time is this or
     *     later: a time, unix seconds, or RFC 3339 text; needs $state
     * @return Answer with `jobs`, and a `cursor` while there may be more
     */
    public function peek(
        string $topic,
        ?string $state = null,
        ?string $cursor = null,
        ?int $count = null,
        ?int $shard = null,
        ?bool $body = null,
        DateTimeInterface|int|float|string|null $from = null,
    ): array {
        $fields = ['topic' => $topic, 'state' => $state, 'cursor' => $cursor, 'count' => $count, 'shard' => $shard];
        return $this->send('peek', $fields + ['body' => $body, 'from' => $from]);
    }

    /**
     * End the waiting pops of a worker now, with the jobs that they have found.
     *
     * @return Answer
     */
    public function leave(string $worker): array
    {
        return $this->send('leave', ['worker' => $worker]);
    }

    /**
     * Send up to 1,000 commands in one request, each in the protocol's form: `['command' => 'add', 'topic' => …]`.
     *
     * @param list<Command> $commands
     * @return list<Answer|JobQueueException> each one's answer, or its error, which is not thrown
     * @throws JobQueueException if the request failed as a whole
     * @throws \TypeError unless each command is an array
     */
    public function batch(array $commands): array
    {
        foreach ($commands as $command) {
            if (!is_array($command)) {
                $type = get_debug_type($command);
                throw new \TypeError("batch() needs a list of commands, such as [['command' => 'stats']]; one is a $type");
            }
        }
        return $commands === [] ? [] : $this->calls->all(array_map(Times::sent(...), array_values($commands)));
    }

    /** @internal for a worker: a connection of its own, with the options of this client */
    public function exchange(): Exchange
    {
        return clone $this->exchange;
    }

    /**
     * Ends a delivery.
     *
     * @param Command $fields
     * @return Answer
     */
    private function end(string $name, Job|string $id, ?int $lease, array $fields): array
    {
        return $this->send($name, self::named($id, $lease) + $fields, of: $id instanceof Job ? $id->topic : null);
    }

    /**
     * @param Command $fields
     * @param string|null $of the topic of the job, if it is not in the fields
     * @return Answer
     */
    private function send(string $name, array $fields, mixed $body = Body::Unchanged, ?string $of = null): array
    {
        return $this->calls->one(Commands::command($name, $fields, $body), $of);
    }

    /** @param string|list<string> $topic */
    private static function field(string|array $topic): string
    {
        return is_string($topic) ? 'topic' : 'topics';
    }

    /** @return Command */
    private static function named(Job|string $id, ?int $lease): array
    {
        if ($id instanceof Job) {
            return ['id' => $id->id, 'lease' => $lease ?? $id->lease];
        }
        return ['id' => $id, 'lease' => $lease];
    }
}
