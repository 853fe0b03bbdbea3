<?php

declare(strict_types=1);

namespace JobQueue\Client;

/** Stands where a body could, because null is a body. */
enum Body
{
    /** Client::update() leaves the body as it is. */
    case Unchanged;
}
