<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `UNAUTHORIZED`: the service does not know who asks. */
final class UnauthorizedException extends RefusedException
{
}
