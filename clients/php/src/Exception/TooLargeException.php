<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `TOO_LARGE`: the request, a body or the answer is too large. */
final class TooLargeException extends RefusedException
{
}
