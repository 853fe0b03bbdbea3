<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

use WeakMap;

/**
 * A value that var_dump, print_r, var_export, json_encode and loggers do not show: it is kept outside the object.
 *
 * @internal
 *
 * @template Value
 */
final class Secret
{
    /** @var WeakMap<self<mixed>, mixed>|null */
    private static ?WeakMap $values = null;

    /** @param Value $value */
    public function __construct(#[\SensitiveParameter] mixed $value)
    {
        self::$values ??= new WeakMap();
        self::$values[$this] = $value;
    }

    /** @return Value */
    public function value(): mixed
    {
        return self::$values?->offsetGet($this);
    }
}
