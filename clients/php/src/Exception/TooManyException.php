<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `TOO_MANY`: the batch has too many commands. */
final class TooManyException extends RefusedException
{
}
