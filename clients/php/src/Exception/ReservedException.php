<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `RESERVED`: a worker has the job now. */
final class ReservedException extends RefusedException
{
}
