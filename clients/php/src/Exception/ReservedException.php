<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `RESERVED`: the job is with a worker now. */
final class ReservedException extends RefusedException
{
}
