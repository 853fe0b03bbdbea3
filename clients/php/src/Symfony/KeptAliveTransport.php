<?php

declare(strict_types=1);

namespace JobQueue\Client\Symfony;

use Symfony\Component\Messenger\Transport\Receiver\KeepaliveReceiverInterface;

/** The transport for Messenger 7.2 and newer, whose workers keep messages alive: `messenger:consume --keepalive`. */
final class KeptAliveTransport extends Transport implements KeepaliveReceiverInterface
{
}
