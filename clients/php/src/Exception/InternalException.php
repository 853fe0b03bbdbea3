<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `INTERNAL`: something went wrong in the service. */
final class InternalException extends RefusedException
{
}
