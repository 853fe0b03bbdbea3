<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use Closure;
use JobQueue\Client\Job;
use Throwable;

/**
 * The hooks of a worker. An error in a hook is logged, and otherwise ignored.
 *
 * @internal
 */
final class Hooks
{
    /**
     * @param (Closure(string, array<string, mixed>): mixed)|null $on_event
     * @param (Closure(Throwable, Job): mixed)|null $on_error
     * @param (Closure(Job, ?string, ?Throwable): mixed)|null $on_death
     */
    public function __construct(
        private readonly Log $log,
        private readonly ?Closure $on_event,
        private readonly ?Closure $on_error,
        private readonly ?Closure $on_death,
    ) {
    }

    /** @param array<string, mixed> $fields */
    public function event(string $name, array $fields): void
    {
        $this->call('on_event', $this->on_event, [$name, $fields]);
    }

    /** A handler failed: it threw something other than Retry, Bury or Lost. */
    public function error(Throwable $error, Job $job): void
    {
        $this->call('on_error', $this->on_error, [$error, $job]);
    }

    /** A job became a dead letter. */
    public function death(Job $job, ?string $reason, ?Throwable $error): void
    {
        $this->call('on_death', $this->on_death, [$job, $reason, $error]);
    }

    /** @param list<mixed> $arguments */
    private function call(string $name, ?Closure $hook, array $arguments): void
    {
        try {
            $hook === null || $hook(...$arguments);
        } catch (Throwable $error) {
            $reason = $error::class . ": {$error->getMessage()}";
            $this->log->write('error', 'hook.failed', ['hook' => $name, 'reason' => $reason, 'error' => $error]);
        }
    }
}
