<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `UNKNOWN_FIELD`: the command has no such field; the message names the nearest one. */
final class UnknownFieldException extends RefusedException
{
}
