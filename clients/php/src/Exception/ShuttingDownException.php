<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `SHUTTING_DOWN`: this instance is shutting down; retry, and another one will answer. */
final class ShuttingDownException extends RefusedException
{
}
