<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `WRONG_STATE`: the job's state does not allow this command. */
final class WrongStateException extends RefusedException
{
}
