<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `ALREADY_EXISTS`: a job with this id already exists. */
final class AlreadyExistsException extends RefusedException
{
}
