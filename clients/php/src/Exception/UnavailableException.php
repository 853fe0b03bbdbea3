<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `UNAVAILABLE`: Redis did not answer in time; perhaps it was done. */
final class UnavailableException extends RefusedException
{
}
