<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

/**
 * What a command is about, as the beginning of an error's message: `delete ord-7: `.
 *
 * @internal
 */
final class Subject
{
    /** @param array<string, mixed> $command without a job, schedule or topic it has no subject; [] for a batch */
    public static function of(array $command): string
    {
        $topics = $command['topics'] ?? null;
        $about = $command['id'] ?? $command['name'] ?? $command['topic'] ?? null;
        $about ??= is_array($topics) ? implode(', ', array_filter($topics, is_string(...))) : '';
        $name = $command['command'] ?? null;
        return is_string($name) && is_scalar($about) && $about !== '' ? "$name $about: " : '';
    }
}
