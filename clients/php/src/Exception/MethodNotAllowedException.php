<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `METHOD_NOT_ALLOWED`: the path does not allow this HTTP method: the URL is wrong. */
final class MethodNotAllowedException extends RefusedException
{
}
