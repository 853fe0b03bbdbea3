<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `TOPIC_FULL`: the topic has reached its limit of pending jobs. */
final class TopicFullException extends RefusedException
{
}
