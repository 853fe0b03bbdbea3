<?php

declare(strict_types=1);

namespace JobQueue\Client;

use DateInterval;
use DateTimeInterface;
use Doctrine\DBAL\Connection as DoctrineConnection;
use Illuminate\Database\ConnectionInterface as LaravelConnection;
use JobQueue\Client\Http\Json;
use PDO;

/**
 * The transactional outbox: writes commands into a table of your database, on your connection, within your transaction.
 * `jobqueue outbox` sends them to the service once they are committed (docs/outbox.md).
 *
 * Parameters are those of the client, checked as there before anything is written. What the service refuses, such as a
 * priority of 10, shows only when the row is sent: in its column `error`.
 *
 * @phpstan-type Command array<string, mixed>
 */
final class Outbox
{
    private const TABLE = '/^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$/D';
    /** The fields of a command that are not in the column `options`. */
    private const NO_OPTIONS = ['command' => 0, 'id' => 0, 'topic' => 0, 'body' => 0, 'delay' => 0, 'at' => 0];

    /**
     * @param string $table its name, or its schema and its name: `shop.jobqueue_outbox`
     * @throws \InvalidArgumentException for another name: it becomes a part of the SQL
     */
    public function __construct(private readonly string $table = 'jobqueue_outbox')
    {
        if (preg_match(self::TABLE, $table) !== 1) {
            $message = "table must be a name such as jobqueue_outbox or shop.jobqueue_outbox, not '$table'";
            throw new \InvalidArgumentException($message);
        }
    }

    /**
     * Add a job once the transaction is committed; otherwise like Client::add().
     *
     * @param mixed $body JSON, as in Client::add()
     * @param int|float|DateInterval|null $delay seconds, or an interval, from now on until it is due
     * @param string|null $id null for a random one, after `<key>@` if there is a $key
     * @param DateTimeInterface|int|float|string|null $at a time, unix seconds, or RFC 3339 text, instead of $delay
     * @param list<int|float>|string|null $backoff `15,30` is [15, 30]
     * @param array<string, string>|null $headers
     * @param list<string>|null $tags
     * @param string|null $key jobs of a topic with the same key run one after the other
     * @return string the id of the job
     * @throws \TypeError if the connection, $delay or $id has another type; or if there is no body
     * @throws \InvalidArgumentException for an $at that is no time, or beside $delay
     * @throws \JsonException for a value that JSON cannot represent
     */
    public function add(
        PDO|DoctrineConnection|LaravelConnection $connection,
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
        int|float|null $spread = null,
        ?string $key = null,
    ): string {
        $id ??= self::newId($key);
        if (!is_string($id)) {
            throw new \TypeError('id must be a string, not a value of the type ' . get_debug_type($id));
        }
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
        ];
        $this->write($connection, Tracing::withCurrent(Commands::add($fields, $body)));
        return $id;
    }

    /**
     * Change a delayed or ready job once the transaction is committed; otherwise like Client::update().
     *
     * @param int|float|DateInterval|null $delay seconds, or an interval, from now on
     * @param DateTimeInterface|int|float|string|null $at a time, unix seconds, or RFC 3339 text, instead of $delay
     * @param mixed $body the new body; null is a valid one
     * @throws \TypeError if the connection has another type
     * @throws \InvalidArgumentException for an $at that is no time, or beside $delay
     * @throws \JsonException for a value that JSON cannot represent
     */
    public function update(
        PDO|DoctrineConnection|LaravelConnection $connection,
        string $id,
        int|float|DateInterval|null $delay = null,
        DateTimeInterface|int|float|string|null $at = null,
        mixed $body = Body::Unchanged,
        ?int $priority = null,
        int|float|null $ttl = null,
    ): void {
        $fields = ['id' => $id, 'delay' => $delay, 'at' => $at, 'priority' => $priority, 'ttl' => $ttl];
        $this->write($connection, Commands::command('update', $fields, $body));
    }

    /**
     * Cancel a job once the transaction is committed.
     *
     * @throws \TypeError if the connection has another type
     * @throws \JsonException for an id that is not UTF-8
     */
    public function delete(PDO|DoctrineConnection|LaravelConnection $connection, string $id): void
    {
        $this->write($connection, Commands::command('delete', ['id' => $id]));
    }

    /** @param Command $command in the form of the protocol */
    private function write(PDO|DoctrineConnection|LaravelConnection $connection, array $command): void
    {
        Json::encode($command); // throws for what the client cannot send either
        $due = Times::due($command);
        $options = array_diff_key($command, self::NO_OPTIONS);
        $row = [
            'id' => $command['id'],
            'action' => $command['command'],
            'topic' => $command['topic'] ?? null,
            'body' => array_key_exists('body', $command) ? Json::encode($command['body']) : null,
            // As text: PDO would keep only 14 digits of a float (the ini option precision).
            'due' => $due === null ? null : Json::encode($due),
            'options' => $options === [] ? null : Json::encode($options),
        ];
        $places = implode(', ', array_fill(0, count($row), '?'));
        $columns = implode(', ', array_keys($row));
        self::insert($connection, "INSERT INTO $this->table ($columns) VALUES ($places)", array_values($row));
    }

    /** @param list<string|null> $values */
    private static function insert(
        PDO|DoctrineConnection|LaravelConnection $connection,
        string $sql,
        array $values,
    ): void {
        if ($connection instanceof DoctrineConnection) {
            $connection->executeStatement($sql, $values);
        } elseif ($connection instanceof LaravelConnection) {
            // False if the application has turned off the exceptions of its PDO.
            $connection->insert($sql, $values) || throw new \RuntimeException("the database refused: $sql");
        } else {
            self::execute($connection, $sql, $values);
        }
    }

    /**
     * Throws whatever the error mode of the connection is: an error that nobody sees would be a lost job.
     *
     * @param list<string|null> $values
     */
    private static function execute(PDO $pdo, string $sql, array $values): void
    {
        $mode = $pdo->getAttribute(PDO::ATTR_ERRMODE);
        $pdo->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);
        try {
            $pdo->prepare($sql)->execute($values);
        } finally {
            $pdo->setAttribute(PDO::ATTR_ERRMODE, $mode);
        }
    }

    /** A random UUID (version 4), without its hyphens; after the key, which decides on the shard. */
    private static function newId(?string $key): string
    {
        $bytes = random_bytes(16);
        $bytes[6] = chr(ord($bytes[6]) & 0x0f | 0x40);
        $bytes[8] = chr(ord($bytes[8]) & 0x3f | 0x80);
        return ($key === null ? '' : "$key@") . bin2hex($bytes);
    }
}
