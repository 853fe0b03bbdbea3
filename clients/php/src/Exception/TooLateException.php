<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `TOO_LATE`: the job fired already. */
final class TooLateException extends RefusedException
{
}
