<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use Closure;

/**
 * Handles SIGTERM and SIGINT while a worker runs.
 *
 * @internal
 */
final class Signals
{
    private const STOP = [SIGTERM, SIGINT];

    private readonly bool $async;
    /** @var array<int, callable|int> the previous handlers */
    private array $before = [];

    public static function arePossible(): bool
    {
        return function_exists('pcntl_async_signals');
    }

    /** @param Closure(): void $onStop runs between two steps of the PHP code that is running */
    public function __construct(Closure $onStop)
    {
        $this->async = pcntl_async_signals(true);
        foreach (self::STOP as $signal) {
            $this->before[$signal] = pcntl_signal_get_handler($signal);
            pcntl_signal($signal, static fn () => $onStop());
        }
    }

    public function restore(): void
    {
        foreach ($this->before as $signal => $handler) {
            pcntl_signal($signal, $handler);
        }
        pcntl_async_signals($this->async);
    }
}
