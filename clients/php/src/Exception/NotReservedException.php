<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `NOT_RESERVED`: the job is with no worker. */
final class NotReservedException extends RefusedException
{
}
