<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `UNAUTHORIZED`: the request has no valid token. */
final class UnauthorizedException extends RefusedException
{
}
