<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `NO_ROOM`: Redis is full: no job is taken in until some are finished. */
final class NoRoomException extends RefusedException
{
}
