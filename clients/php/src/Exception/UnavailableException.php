<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `UNAVAILABLE`: Redis did not answer in time; the command may have been executed nevertheless. */
final class UnavailableException extends RefusedException
{
}
