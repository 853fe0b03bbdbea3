<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `MISDIRECTED`: the service is not known under the name in the URL; its setting `allowed_hosts` adds names. */
final class MisdirectedException extends RefusedException
{
}
