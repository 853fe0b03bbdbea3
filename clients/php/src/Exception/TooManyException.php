<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `TOO_MANY`: more commands in one request than are allowed. */
final class TooManyException extends RefusedException
{
}
