<?php

declare(strict_types=1);

namespace JobQueue\Client\Exception;

/** `TOPIC_FULL`: the topic has as many pending jobs as it may have. */
final class TopicFullException extends RefusedException
{
}
