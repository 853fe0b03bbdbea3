<?php

declare(strict_types=1);

namespace JobQueue\Client;

use Closure;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Exception\UnreachableException;

/**
 * Commands there and answers back, once: nothing is repeated here. A clone has a connection of its own.
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
        return self::accepted(self::answer($this->decoded($response), $response), $response->status);
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @param (Closure(): bool)|null $giveUp as in Transport::post
     * @return list<array<string, mixed>|RefusedException>|null an answer or refusal for each; null: given up
     * @throws JobQueueException when all of them together failed
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
            self::accepted(self::answer($answers, $response), $response->status);
            throw self::page($response);
        }
        return array_map(static fn (mixed $answer) => self::member(self::answer($answer, $response)), $answers);
    }

    /** @param array<string, mixed> $command */
    private static function wait(array $command): float
    {
        $wait = $command['wait'] ?? 0;
        return is_int($wait) || is_float($wait) ? (float) $wait : 0.0; // what else it may be, the service refuses
    }

    private function decoded(Response $response): mixed
    {
        try {
            return Json::decode($response->body, $this->objects);
        } catch (\JsonException) {
            throw self::page($response);
        }
    }

    /** @return array<string, mixed> */
    private static function answer(mixed $answer, Response $response): array
    {
        $answer = $answer instanceof \stdClass ? (array) $answer : $answer;
        if (!is_array($answer) || !is_bool($answer['success'] ?? null)) {
            throw self::page($response);
        }
        return $answer;
    }

    /**
     * @param array<string, mixed> $answer
     * @return array<string, mixed>
     */
    private static function accepted(array $answer, int $status): array
    {
        return $answer['success'] ? $answer : throw RefusedException::of($answer, $status);
    }

    /**
     * @param array<string, mixed> $answer
     * @return array<string, mixed>|RefusedException
     */
    private static function member(array $answer): array|RefusedException
    {
        return $answer['success'] ? $answer : RefusedException::of($answer);
    }

    private static function page(Response $response): UnreachableException
    {
        $message = "HTTP {$response->status} with a page that is no answer of a job queue";
        return new UnreachableException($message, true, $response->status, $response->retry_after);
    }
}
