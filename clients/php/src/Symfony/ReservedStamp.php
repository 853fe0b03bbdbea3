<?php

declare(strict_types=1);

namespace JobQueue\Client\Symfony;

use JobQueue\Client\Job;
use Symfony\Component\Messenger\Stamp\NonSendableStampInterface;

/** The job of a received message. */
final class ReservedStamp implements NonSendableStampInterface
{
    public function __construct(public readonly Job $job)
    {
    }
}
