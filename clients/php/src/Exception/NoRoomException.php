<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `NO_ROOM`: Redis is full: the service accepts no job until others are finished. */
final class NoRoomException extends RefusedException
{
}
