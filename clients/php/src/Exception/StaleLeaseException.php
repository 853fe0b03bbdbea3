<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `STALE_LEASE`: the lease is outdated: the job has been handed out again since. */
final class StaleLeaseException extends RefusedException
{
}
