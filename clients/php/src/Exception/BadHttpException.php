<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `BAD_HTTP`: the request is not HTTP as the service takes it. */
final class BadHttpException extends RefusedException
{
}
