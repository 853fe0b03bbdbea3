<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use Closure;
use JobQueue\Client\Job;

/**
 * The handlers of a worker, one for each topic, and the middleware around all of them.
 *
 * @internal
 */
final class Handlers
{
    /** @var array<string, callable(Job): mixed> */
    private array $byTopic = [];
    /** @var list<callable(Job, Closure(): mixed): mixed> */
    private array $middleware = [];

    /** @param callable(Job): mixed $handler */
    public function add(string $topic, callable $handler): void
    {
        if (isset($this->byTopic[$topic])) {
            throw new \LogicException("the topic $topic already has a handler");
        }
        $this->byTopic[$topic] = $handler;
    }

    /** @param callable(Job, Closure(): mixed): mixed $middleware */
    public function around(callable $middleware): void
    {
        $this->middleware[] = $middleware;
    }

    /** @return list<string> */
    public function topics(): array
    {
        return array_map(strval(...), array_keys($this->byTopic)); // PHP turns the key "7" into 7
    }

    /** Runs the handler of a job, inside the middleware: the first one is outermost. */
    public function handle(Job $job): void
    {
        $next = fn (): mixed => ($this->byTopic[$job->topic])($job);
        foreach (array_reverse($this->middleware) as $middleware) {
            $next = static fn (): mixed => $middleware($job, $next);
        }
        $next();
    }
}
