<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `BAD_FIELD`: a field has an invalid value; `field` names it. */
final class BadFieldException extends RefusedException
{
}
