<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

/**
 * JSON as sent: compact UTF-8 without needless escapes, so that all clients send the same bytes.
 *
 * @internal
 */
final class Json
{
    /** The service accepts fewer than 1,000 levels; PHP's default is 512. */
    private const DEPTH = 1024;

    /** @throws \JsonException for a value that JSON cannot represent: NaN, a string that is not UTF-8, a resource */
    public static function encode(mixed $value): string
    {
        $flags = JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_LINE_TERMINATORS
            | JSON_PRESERVE_ZERO_FRACTION | JSON_THROW_ON_ERROR;
        return json_encode($value, $flags, self::DEPTH);
    }

    /**
     * Integers beyond PHP's int become strings.
     *
     * @param bool $objects true: objects become stdClass; false: associative arrays, where `{}` and `[]` are the same
     * @throws \JsonException
     */
    public static function decode(string $text, bool $objects): mixed
    {
        return json_decode($text, !$objects, self::DEPTH, JSON_BIGINT_AS_STRING | JSON_THROW_ON_ERROR);
    }
}
