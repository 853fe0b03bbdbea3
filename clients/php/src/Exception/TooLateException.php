<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `TOO_LATE`: the job has already fired. */
final class TooLateException extends RefusedException
{
}
