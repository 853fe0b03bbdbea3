<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `TOO_FAST`: the rate limit is exceeded; `retry_after` says when to retry. */
final class TooFastException extends RefusedException
{
}
