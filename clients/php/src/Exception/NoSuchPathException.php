<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `NO_SUCH_PATH`: the service has no such path: the URL is wrong. */
final class NoSuchPathException extends RefusedException
{
}
