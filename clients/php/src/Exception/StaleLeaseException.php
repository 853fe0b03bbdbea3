<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `STALE_LEASE`: the job was handed out again since: the lease is not its newest. */
final class StaleLeaseException extends RefusedException
{
}
