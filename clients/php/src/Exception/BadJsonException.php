<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `BAD_JSON`: the request is not JSON. */
final class BadJsonException extends RefusedException
{
}
