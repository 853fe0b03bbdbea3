<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

use Closure;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Exception\UnreachableException;
use JobQueue\Client\Job;

/**
 * One HTTP exchange: commands out, answers back, without retries. A clone has a connection of its own.
 *
 * @internal
 */
final class Exchange
{
    public function __construct(private Transport $transport, public readonly bool $objects)
    {
    }

    public function __clone(): void
    {
        $this->transport = clone $this->transport;
    }

    /**
     * @param array<string, mixed> $command
     * @return array<string, mixed> the answer
     * @throws JobQueueException
     */
    public function one(array $command): array
    {
        $response = $this->transport->post(Json::encode($command), self::wait($command));
        assert($response !== null);
        return self::accepted(self::answer($this->decoded($response), $command, $response), $response);
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @param (Closure(): bool)|null $giveUp as in Transport::post
     * @return list<array<string, mixed>|RefusedException>|null each one's answer or refusal; null: given up
     * @throws JobQueueException if the request failed as a whole
     */
    public function all(array $commands, ?Closure $giveUp = null): ?array
    {
        $last = $commands[array_key_last($commands) ?? 0] ?? [];
        $response = $this->transport->post(Json::encode($commands), self::wait($last), $giveUp);
        if ($response === null) {
            return null;
        }
        $answers = $this->decoded($response);
        if (!is_array($answers) || !array_is_list($answers) || count($answers) !== count($commands)) {
            self::accepted(self::answer($answers, [], $response), $response);
            throw self::foreign($response);
        }
        $member = static fn (mixed $answer, array $command): array|RefusedException
            => self::member(self::answer($answer, $command, $response));
        return array_map($member, $answers, $commands);
    }

    /** @param array<string, mixed> $command */
    private static function wait(array $command): float
    {
        $wait = $command['wait'] ?? 0;
        return is_int($wait) || is_float($wait) ? max(0.0, $wait) : 0.0; // the service refuses any other value
    }

    private function decoded(Response $response): mixed
    {
        try {
            return Json::decode($response->body, $this->objects);
        } catch (\JsonException) {
            throw self::foreign($response);
        }
    }

    /**
     * @param array<string, mixed> $command
     * @return array<string, mixed>
     */
    private static function answer(mixed $answer, array $command, Response $response): array
    {
        $answer = $answer instanceof \stdClass ? (array) $answer : $answer;
        if (!is_array($answer) || !is_bool($answer['success'] ?? null)) {
            throw self::foreign($response);
        }
        if ($answer['success'] && ($command['command'] ?? null) === 'pop' && !self::hasJobs($answer, $command)) {
            throw self::foreign($response);
        }
        return $answer;
    }

    /**
     * @param array<string, mixed> $answer of a pop
     * @param array<string, mixed> $pop
     */
    private static function hasJobs(array $answer, array $pop): bool
    {
        if (!isset($pop['count'])) {
            return array_key_exists('id', $answer) && ($answer['id'] === null || Job::fits($answer));
        }
        $jobs = $answer['jobs'] ?? null;
        return is_array($jobs) && array_filter($jobs, static fn (mixed $job) => Job::fits((array) $job)) === $jobs;
    }

    /**
     * @param array<string, mixed> $answer
     * @return array<string, mixed>
     */
    private static function accepted(array $answer, Response $response): array
    {
        return $answer['success']
            ? $answer
            : throw RefusedException::of($answer, $response->status, $response->retry_after);
    }

    /**
     * @param array<string, mixed> $answer
     * @return array<string, mixed>|RefusedException
     */
    private static function member(array $answer): array|RefusedException
    {
        return $answer['success'] ? $answer : RefusedException::of($answer);
    }

    /** The error for a reply of something else: a proxy whose service is down, or a wrong URL. */
    private static function foreign(Response $response): UnreachableException
    {
        $message = "the reply is not from a job queue: HTTP status {$response->status}";
        $maybeDone = $response->status < 300 || $response->status >= 500;
        return new UnreachableException($message, $maybeDone, $response->status, $response->retry_after);
    }
}
