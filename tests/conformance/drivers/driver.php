<?php

// The driver of the PHP client for the conformance suite; ../README.md describes it.

declare(strict_types=1);

use JobQueue\Client\Bury;
use JobQueue\Client\Client;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Exception\UnreachableException;
use JobQueue\Client\Job;
use JobQueue\Client\Http\Json;
use JobQueue\Client\Retry;
use JobQueue\Client\Worker;

$package = dirname(__DIR__, 3) . '/clients/php';
require is_file("$package/vendor/autoload.php") ? "$package/vendor/autoload.php" : "$package/autoload.php";

[, $what, $url, $options] = $argv;
exit($what === 'client' ? client($url, given($options)) : worker($url, given($options)));

/** @return array<string, mixed> the members of a JSON object; their values stay as decoded */
function given(string $json): array
{
    return (array) Json::decode($json, objects: true);
}

/** @param array<string, mixed> $line */
function tell(array $line): void
{
    fwrite(STDOUT, Json::encode($line) . "\n");
}

/** @param array<string, mixed> $options */
function client(string $url, array $options): int
{
    $options['headers'] = (array) ($options['headers'] ?? []);
    $client = new Client(...addressed($url, $options), objects: true);
    $popped = [];
    while (($line = fgets(STDIN)) !== false) {
        try {
            $request = given($line);
            if ($request['call'] === 'new') {
                $one = made((array) $request['args']);
                $client = $one instanceof Client ? $one : $client;
                tell(['ok' => null]);
                continue;
            }
            $arguments = arguments($request['call'], (array) ($request['args'] ?? []), $popped);
            $result = $client->{method($request['call'])}(...($request['positional'] ?? []), ...$arguments);
            foreach (is_array($result) ? $result : [$result] as $job) {
                if ($job instanceof Job) {
                    $popped["$job->id $job->lease"] = $job;
                }
            }
            tell(['ok' => $request['call'] === 'batch' ? array_map(member(...), $result) : written($result)]);
        } catch (Throwable $error) {
            tell(['error' => told($error)]);
        }
    }
    return 0;
}

/**
 * @param array<string, mixed> $options
 * @return array<string, mixed> those of the client
 */
function addressed(string $url, array $options): array
{
    return isset($options['urls']) ? $options : ['url' => $url] + $options;
}

/** @param array<string, mixed> $args its `options`, exactly; what it is `of`; the rest are variables meanwhile */
function made(array $args): Client|Worker
{
    $environment = array_diff_key($args, ['of' => 0, 'options' => 0]);
    $options = (array) $args['options'];
    if (($options['headers'] ?? null) instanceof stdClass) {
        $options['headers'] = (array) $options['headers'];
    }
    array_map(fn (string $name) => putenv("$name=$environment[$name]"), array_keys($environment));
    try {
        return ($args['of'] ?? '') === 'worker' ? new Worker(...$options) : new Client(...$options, objects: true);
    } finally {
        array_map(putenv(...), array_keys($environment));
    }
}

function method(string $call): string
{
    return ['pop_many' => 'popMany', 'kick_topic' => 'kickTopic'][$call] ?? $call;
}

/**
 * @param array<string, mixed> $given
 * @param array<string, Job> $popped by id and lease
 * @return array<string, mixed>
 */
function arguments(string $call, array $given, array $popped): array
{
    if (isset($given['job'])) {
        $job = $popped["{$given['job']->id} {$given['job']->lease}"];
        $given = ['id' => $job] + array_diff_key($given, ['job' => 0]);
    }
    if ($call !== 'token' && isset($given['topics'])) {
        $given = ['topic' => $given['topics']] + array_diff_key($given, ['topics' => 0]);
    }
    $given = timed($given);
    if (isset($given['filter'])) {
        $given['filter'] = timed((array) $given['filter']);
    }
    if (in_array($call, ['add', 'schedule'], true) && ($given['headers'] ?? null) instanceof stdClass) {
        $given['headers'] = (array) $given['headers'];
    }
    if ($call === 'batch') {
        $plain = static fn (mixed $command) => $command instanceof stdClass ? (array) $command : $command;
        $given['commands'] = array_map($plain, (array) $given['commands']);
    }
    return $given;
}

/**
 * @param array<string, mixed> $given
 * @return array<string, mixed>
 */
function timed(array $given): array
{
    foreach (['at', 'from', 'start', 'since', 'until', 'created_from'] as $field) {
        if (isset($given[$field]->time)) {
            $given[$field] = new DateTimeImmutable($given[$field]->time);
        }
    }
    return $given;
}

function written(mixed $result): mixed
{
    if (is_array($result) && array_is_list($result)) {
        return array_map(written(...), $result);
    }
    return $result instanceof Job ? fields($result) : $result;
}

/** @return array<string, mixed> */
function member(mixed $result): array
{
    return $result instanceof JobQueueException ? ['error' => told($result)] : ['ok' => $result];
}

/** @return array<string, mixed> */
function fields(Job $job): array
{
    return [
        'id' => $job->id,
        'topic' => $job->topic,
        'body' => $job->body,
        'lease' => $job->lease,
        'attempt' => $job->attempt,
        'tries' => $job->tries,
        'due' => $job->due,
        'ttr' => $job->ttr,
        'headers' => $job->headers,
        'trace_id' => $job->trace_id,
        'created' => $job->created,
        'last_try' => $job->last_try,
    ];
}

/** @return array<string, mixed> */
function told(Throwable $error): array
{
    $told = ['class' => 'Local', 'message' => $error->getMessage()];
    if (!$error instanceof JobQueueException) {
        return $told;
    }
    $told['class'] = preg_replace('/Exception$/', '', (new ReflectionClass($error))->getShortName());
    if ($error instanceof UnreachableException) {
        return $told + ['maybe_done' => $error->maybe_done];
    }
    assert($error instanceof RefusedException);
    return $told + [
        'code' => $error->error_code,
        'status' => $error->status,
        'state' => $error->state,
        'field' => $error->field,
        'retry_after' => $error->retry_after,
        'right' => $error->right ?? null,
        'topic' => $error->topic ?? null,
    ];
}

/** @param array<string, mixed> $options */
function worker(string $url, array $options): int
{
    // In PHP a worker always runs one job at a time.
    $given = array_diff_key($options, ['topics' => 0, 'concurrency' => 0, 'middleware' => 0]);
    $given['headers'] = (array) ($given['headers'] ?? []);
    $message = static fn (array $fields) => isset($fields['error']) ? ['error' => $fields['error']->getMessage()] : [];
    $hooks = [
        'on_event' => static fn (string $name, array $fields) => tell(['event' => $name] + $message($fields) + $fields),
        'on_error' => static fn (Throwable $error, Job $job)
            => tell(['hook' => 'error', 'id' => $job->id, 'message' => $error->getMessage()]),
        'on_death' => static fn (Job $job, ?string $reason, ?Throwable $error)
            => tell(['hook' => 'death', 'id' => $job->id, 'reason' => $reason, 'message' => $error?->getMessage()]),
    ];
    $worker = new Worker(...addressed($url, $given), ...$hooks, objects: true);
    foreach (($options['middleware'] ?? false) ? [outer(...), inner(...)] : [] as $middleware) {
        $worker->use($middleware);
    }
    foreach ($options['topics'] as $topic) {
        $worker->job($topic, handle(...));
    }
    $clean = $worker->run();
    tell(['clean' => $clean]);
    return $clean ? 0 : 1;
}

function outer(Job $job, callable $next): void
{
    tell(['around' => 'outer', 'id' => $job->id]);
    tell(['around' => 'outer after ' . $next(), 'id' => $job->id]);
}

/** Buries what it is to bury, and what failed. */
function inner(Job $job, callable $next): mixed
{
    tell(['around' => 'inner', 'id' => $job->id]);
    if (($job->body->inner ?? '') === 'buries') {
        throw new Bury('not this one');
    }
    try {
        return $next();
    } catch (RuntimeException $error) {
        throw $error::class === RuntimeException::class ? new Bury("inner: {$error->getMessage()}") : $error;
    }
}

function handle(Job $job): string
{
    $started = ['id' => $job->id, 'attempt' => $job->attempt, 'lease' => $job->lease, 'body' => $job->body];
    tell(['handler' => 'started'] + $started);
    obey($job);
    tell(['handler' => 'returned', 'id' => $job->id]);
    return 'done';
}

function obey(Job $job): void
{
    $order = (array) $job->body;
    match ($order['do']) {
        'return' => null,
        'sleep' => sleepFor($order['seconds']),
        'fail' => throw new RuntimeException($order['reason']),
        'retry' => throw new Retry(...array_diff_key($order, ['do' => 0])),
        'bury' => throw new Bury($order['reason']),
        'watch' => watch($job),
    };
}

/** A signal ends PHP's sleep early. */
function sleepFor(int|float $seconds): void
{
    $end = microtime(true) + $seconds;
    while (($left = $end - microtime(true)) > 0) {
        usleep((int) ($left * 1e6) + 1);
    }
}

function watch(Job $job): void
{
    while (($reason = $job->lost()) === null) {
        usleep(20_000);
    }
    tell(['handler' => 'lost', 'id' => $job->id, 'reason' => $reason]);
    $job->check();
}
