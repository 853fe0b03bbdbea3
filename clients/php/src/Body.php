<?php

declare(strict_types=1);

namespace JobQueue\Client;

/** A placeholder for a body, because null is a valid body. */
enum Body
{
    /** Client::update() leaves the body as it is, and so does Client::add() with if_exists later or sooner. */
    case Unchanged;

    /** Testing\Queue::assertWaiting() ignores the body. */
    case Any;
}
