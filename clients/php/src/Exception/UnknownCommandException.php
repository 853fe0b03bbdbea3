<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `UNKNOWN_COMMAND`: there is no such command. */
final class UnknownCommandException extends RefusedException
{
}
