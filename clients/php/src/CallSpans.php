<?php

declare(strict_types=1);

namespace JobQueue\Client;

use Closure;
use JobQueue\Client\Exception\JobQueueException;
use OpenTelemetry\API\Trace\SpanInterface;

/**
 * The spans around the calls of a client: `send` for adds, `receive` for pops, `settle` for the ends of jobs.
 *
 * A span lasts from the first attempt to the last. The other commands have none.
 *
 * @internal
 */
final class CallSpans
{
    public function __construct(private readonly Tracing $tracing)
    {
    }

    /**
     * @param array<string, mixed> $command
     * @param string|null $topic that of the job, if the command does not name it
     * @param Closure(array<string, mixed>): array<string, mixed> $send
     * @return array<string, mixed> the answer
     */
    public function one(array $command, ?string $topic, Closure $send): array
    {
        return match ($command['command']) {
            'add' => $this->add($command, $send),
            'pop' => $this->pop($command, $send),
            'finish', 'release', 'bury' => $this->end($command, $topic, $send),
            default => $send($command),
        };
    }

    /**
     * One span for all adds; the other members have none.
     *
     * @template Answers of list<array<string, mixed>|JobQueueException>
     * @param list<array<string, mixed>> $commands
     * @param Closure(list<array<string, mixed>>): Answers $send
     * @return Answers
     */
    public function all(array $commands, Closure $send): array
    {
        $adds = array_filter($commands, static fn (array $command): bool => ($command['command'] ?? null) === 'add');
        if ($adds === []) {
            return $send($commands);
        }
        $topics = array_map(static fn (array $add): mixed => $add['topic'] ?? null, $adds);
        $count = ['messaging.batch.message_count' => count($adds)];
        $span = $this->tracing->span('add', Tracing::single($topics), $count)->startSpan();
        return self::within($span, static function () use ($commands, $adds, $send, $span): array {
            $injected = array_map(static fn (array $add): array => Tracing::injected($add, $span), $adds);
            $answers = $send(array_replace($commands, $injected));
            $errors = array_filter(array_intersect_key($answers, $adds), static fn (mixed $answer): bool
                => $answer instanceof JobQueueException);
            $errors === [] || Tracing::failed($span, reset($errors));
            return $answers;
        });
    }

    /**
     * @param array<string, mixed> $command
     * @param Closure(array<string, mixed>): array<string, mixed> $send
     * @return array<string, mixed>
     */
    private function add(array $command, Closure $send): array
    {
        $id = self::id($command);
        $span = $this->tracing->span('add', $command['topic'], ['messaging.message.id' => $id])->startSpan();
        return self::within($span, static function () use ($command, $id, $send, $span): array {
            $answer = $send(Tracing::injected($command, $span));
            $id ??= self::id($answer);
            $id === null || $span->setAttribute('messaging.message.id', $id);
            return $answer;
        });
    }

    /**
     * @param array<string, mixed> $command
     * @param Closure(array<string, mixed>): array<string, mixed> $send
     * @return array<string, mixed>
     */
    private function pop(array $command, Closure $send): array
    {
        $since = Clock::now();
        $answer = $send($command);
        $counted = isset($command['count']);
        $jobs = array_map(static fn (mixed $job): array => (array) $job, $counted ? $answer['jobs'] : [$answer]);
        $found = array_values(array_filter($jobs, static fn (array $job): bool => $job['id'] !== null));
        $this->tracing->received($found, $since, $counted);
        return $answer;
    }

    /**
     * @param array<string, mixed> $command
     * @param Closure(array<string, mixed>): array<string, mixed> $send
     * @return array<string, mixed>
     */
    private function end(array $command, ?string $topic, Closure $send): array
    {
        $attributes = ['messaging.message.id' => self::id($command)];
        $span = $this->tracing->span($command['command'], $topic, $attributes)->startSpan();
        return self::within($span, static fn (): array => $send($command));
    }

    /**
     * @template Answer
     * @param Closure(): Answer $call
     * @return Answer
     */
    private static function within(SpanInterface $span, Closure $call): mixed
    {
        try {
            return $call();
        } catch (\Throwable $error) {
            Tracing::failed($span, $error);
            throw $error;
        } finally {
            $span->end();
        }
    }

    /** @param array<string, mixed> $command or answer; its id is not checked: the service refuses a number */
    private static function id(array $command): ?string
    {
        return is_string($command['id'] ?? null) ? $command['id'] : null;
    }
}
