<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `FORBIDDEN`: who asks may not do this. */
final class ForbiddenException extends RefusedException
{
}
