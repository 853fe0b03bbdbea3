<?php

declare(strict_types=1);

namespace JobQueue\Client;

/** A handler throws this if no retry can help: its job becomes a dead letter. */
final class Bury extends \Exception
{
    /** @param string|null $reason kept with the job, cut to 1,000 characters */
    public function __construct(public readonly ?string $reason = null)
    {
        parent::__construct($reason ?? 'buried');
    }
}
