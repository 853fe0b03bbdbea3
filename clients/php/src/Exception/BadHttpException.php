<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `BAD_HTTP`: the request is not HTTP that the service accepts. */
final class BadHttpException extends RefusedException
{
}
