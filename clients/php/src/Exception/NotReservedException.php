<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `NOT_RESERVED`: no worker has the job. */
final class NotReservedException extends RefusedException
{
}
