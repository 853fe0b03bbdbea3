<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use Psr\Log\LoggerInterface;
use Throwable;

/**
 * The log of a worker: a PSR-3 logger, or lines on standard error.
 *
 * @internal
 */
final class Log
{
    public function __construct(private readonly ?LoggerInterface $logger)
    {
    }

    /**
     * @param string $level a level of PSR-3
     * @param array<string, mixed> $fields `error` is what a handler threw
     */
    public function write(string $level, string $event, array $fields): void
    {
        $error = $fields['error'] ?? null;
        unset($fields['error']);
        try {
            if ($this->logger === null) {
                self::line($event, $fields + self::places($error));
            } else {
                $this->logger->log($level, $event, $fields + ($error === null ? [] : ['exception' => $error]));
            }
        } catch (Throwable $failed) {
            self::line($event, $fields + ['log_failed' => $failed->getMessage()]);
        }
    }

    /** @param array<string, mixed> $fields */
    private static function line(string $event, array $fields): void
    {
        $line = gmdate('Y-m-d\TH:i:s\Z') . " $event";
        foreach ($fields as $field => $value) {
            $flags = JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE;
            $line .= " $field=" . json_encode($value, $flags);
        }
        // A program that PHP reads from standard input has no STDERR, and a daemon may have closed it.
        defined('STDERR') && is_resource(STDERR) ? fwrite(STDERR, "$line\n") : error_log($line);
    }

    /** @return array<string, string> where an error was thrown, and what caused it */
    private static function places(?Throwable $error): array
    {
        if ($error === null) {
            return [];
        }
        $places = ['at' => $error->getFile() . ':' . $error->getLine()];
        $cause = $error->getPrevious();
        return $cause === null ? $places : $places + ['caused_by' => self::cause($cause)];
    }

    private static function cause(Throwable $cause): string
    {
        return $cause::class . ": {$cause->getMessage()} at {$cause->getFile()}:{$cause->getLine()}";
    }
}
