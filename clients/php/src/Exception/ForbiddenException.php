<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `FORBIDDEN`: the token does not allow this. */
final class ForbiddenException extends RefusedException
{
}
