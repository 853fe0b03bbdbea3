<?php

declare(strict_types=1);

namespace JobQueue\Client;

/** A handler throws this when no repetition can help: its job goes to the dead letters. */
final class Bury extends \Exception
{
    /** @param string|null $reason kept with the job; what is beyond 1,000 characters is cut off */
    public function __construct(public readonly ?string $reason = null)
    {
        parent::__construct($reason ?? 'buried');
    }
}
