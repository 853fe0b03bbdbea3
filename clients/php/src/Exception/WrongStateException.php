<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `WRONG_STATE`: the job is not in a state for this. */
final class WrongStateException extends RefusedException
{
}
