<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

/**
 * A process, identified by its pid and start time: once it has ended, another process may get its pid.
 *
 * The start time is known only where /proc exists (Linux); elsewhere, only the pid counts.
 *
 * @internal
 */
final class Process
{
    /** The place of the start time in /proc/PID/stat, counted from the state, which follows the name. */
    private const START = 19;

    private function __construct(public readonly int $pid, private readonly ?string $start)
    {
    }

    public static function of(int $pid): self
    {
        return new self($pid, self::isProcOurs() ? self::stat($pid)[self::START] ?? '' : null);
    }

    /** Return true if the process has not ended; a zombie has. */
    public function isAlive(): bool
    {
        if ($this->start === null) {
            return posix_kill($this->pid, 0);
        }
        $stat = self::stat($this->pid);
        return ($stat[self::START] ?? null) === $this->start && !in_array($stat[0], ['Z', 'X'], true);
    }

    /** Return true if the process is stopped (SIGSTOP, a debugger) and does no work; always false without /proc. */
    public function isStopped(): bool
    {
        return $this->start !== null && in_array(self::stat($this->pid)[0] ?? null, ['T', 't'], true);
    }

    public function kill(int $signal): void
    {
        if ($this->isAlive()) {
            posix_kill($this->pid, $signal);
        }
    }

    /** /proc may be that of another PID namespace, whose pids are not ours. */
    private static function isProcOurs(): bool
    {
        return @readlink('/proc/self') === (string) getmypid();
    }

    /** @return list<string> the fields from the state on; the name before the state may have spaces and parentheses */
    private static function stat(int $pid): array
    {
        $stat = (string) @file_get_contents("/proc/$pid/stat");
        return $stat === '' ? [] : explode(' ', substr($stat, (int) strrpos($stat, ')') + 2));
    }
}
