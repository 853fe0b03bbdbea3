<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `NOT_FOUND`: there is no such job, schedule or token. */
final class NotFoundException extends RefusedException
{
}
