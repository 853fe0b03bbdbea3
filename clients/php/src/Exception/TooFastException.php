<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `TOO_FAST`: more requests than are allowed; `retry_after` says when to come again. */
final class TooFastException extends RefusedException
{
}
