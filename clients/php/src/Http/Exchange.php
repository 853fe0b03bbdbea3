<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

use Closure;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Exception\UnreachableException;
use JobQueue\Client\Job;
use JobQueue\Client\Retries;

/**
 * One HTTP exchange: commands out, answers back, without retries. A clone has a connection of its own.
 *
 * @internal
 */
final class Exchange
{
    public function __construct(private Addresses $addresses, public readonly bool $objects)
    {
    }

    public function __clone(): void
    {
        $this->addresses = clone $this->addresses;
    }

    /** The route of a request and its retries. */
    public function route(): Route
    {
        return $this->addresses->route();
    }

    /**
     * @param array<string, mixed> $command
     * @return array<string, mixed> the answer
     * @throws JobQueueException
     */
    public function one(array $command, Route $route): array
    {
        $answer = $this->at($route->next(), function (Address $address) use ($command): array|RefusedException {
            $response = self::sent($command, $address, Json::encode($command), self::wait($command));
            return $this->answerOf($command, $response);
        });
        return $answer instanceof RefusedException ? throw $answer : $answer;
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @param (Closure(): bool)|null $giveUp as in Transport::post
     * @return list<array<string, mixed>|RefusedException>|null each one's answer or refusal; null if given up
     * @throws JobQueueException if the request failed as a whole
     */
    public function all(array $commands, Route $route, ?Closure $giveUp = null): ?array
    {
        $wait = self::wait($commands[array_key_last($commands) ?? 0] ?? []);
        return $this->at($route->next(), function (Address $address) use ($commands, $wait, $giveUp): ?array {
            $one = count($commands) === 1 ? $commands[0] : [];
            $response = self::sent($one, $address, Json::encode($commands), $wait, $giveUp);
            return $response === null ? null : $this->answersOf($commands, $response);
        });
    }

    /**
     * Sends a request to an address, and notes from the result whether to skip the address from now on.
     *
     * @template Answer
     * @param Closure(Address): Answer $ask
     * @return Answer
     * @throws JobQueueException
     */
    private function at(Address $address, Closure $ask): mixed
    {
        try {
            $answer = $ask($address);
            $members = is_array($answer) ? $answer : [$answer];
            $away = array_filter($members, static fn (mixed $each): bool
                => $each instanceof JobQueueException && Retries::isAway($each));
            $away === [] ? $answer === null || $address->answered() : $address->failed();
            return $answer;
        } catch (JobQueueException $error) {
            Retries::isAway($error) ? $address->failed() : $address->answered();
            throw $error;
        }
    }

    /**
     * @param array<string, mixed> $command
     * @param (Closure(): bool)|null $giveUp
     * @throws UnreachableException
     */
    private static function sent(
        array $command,
        Address $address,
        string $json,
        float $wait_s,
        ?Closure $giveUp = null,
    ): ?Response {
        try {
            return $address->transport()->post($json, $wait_s, $giveUp);
        } catch (UnreachableException $error) {
            throw $error->of(Subject::of($command) . "$address->url: ");
        }
    }

    /**
     * @param array<string, mixed> $command
     * @return array<string, mixed>|RefusedException
     */
    private function answerOf(array $command, ?Response $response): array|RefusedException
    {
        assert($response !== null);
        $answer = self::answer($this->decoded($response, $command), $command, $response);
        return self::judged($answer, $command, $response);
    }

    /**
     * @param list<array<string, mixed>> $commands
     * @return list<array<string, mixed>|RefusedException>
     */
    private function answersOf(array $commands, Response $response): array
    {
        $one = count($commands) === 1 ? $commands[0] : [];
        $answers = $this->decoded($response, $one);
        if (!is_array($answers) || !array_is_list($answers) || count($answers) !== count($commands)) {
            $answer = self::judged(self::answer($answers, $one, $response), $one, $response);
            throw $answer instanceof RefusedException ? $answer : self::foreign($response, $one);
        }
        $member = static fn (mixed $answer, array $command): array|RefusedException
            => self::judged(self::answer($answer, $command, $response), $command);
        return array_map($member, $answers, $commands);
    }

    /** @param array<string, mixed> $command */
    private static function wait(array $command): float
    {
        $wait = $command['wait'] ?? 0;
        return is_int($wait) || is_float($wait) ? max(0.0, $wait) : 0.0; // the service refuses any other value
    }

    /** @param array<string, mixed> $command */
    private function decoded(Response $response, array $command): mixed
    {
        try {
            return Json::decode($response->body, $this->objects);
        } catch (\JsonException) {
            throw self::foreign($response, $command);
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
            throw self::foreign($response, $command);
        }
        if ($answer['success'] && ($command['command'] ?? null) === 'pop' && !self::hasJobs($answer, $command)) {
            throw self::foreign($response, $command);
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
     * @param array<string, mixed> $command
     * @param Response|null $response null if the answer is a member of a batch
     * @return array<string, mixed>|RefusedException
     */
    private static function judged(array $answer, array $command, ?Response $response = null): array|RefusedException
    {
        return $answer['success']
            ? $answer
            : RefusedException::of($answer, Subject::of($command), $response?->status, $response?->retry_after);
    }

    /**
     * The error for a reply that is not from a job queue: a proxy whose service is down, or a wrong URL.
     *
     * @param array<string, mixed> $command
     */
    private static function foreign(Response $response, array $command): UnreachableException
    {
        $message = Subject::of($command) . "the reply is not from a job queue: HTTP status {$response->status}";
        $maybeDone = $response->status < 300 || $response->status >= 500;
        return new UnreachableException($message, $maybeDone, $response->status, $response->retry_after);
    }
}
