<?php

declare(strict_types=1);

namespace JobQueue\Client\Testing;

/** A job that no worker has now. */
final class QueuedJob
{
    /**
     * @param string $state delayed, ready or dead
     * @param float $due in unix seconds
     * @param float $delay seconds until it is ready: 0 for a ready one
     * @param array<string, mixed> $details all that the service says about it
     */
    private function __construct(
        public readonly string $id,
        public readonly string $topic,
        public readonly mixed $body,
        public readonly string $state,
        public readonly float $due,
        public readonly float $delay,
        public readonly array $details,
    ) {
    }

    /**
     * @param array<string, mixed> $details
     * @internal
     */
    public static function of(array $details, float $now): self
    {
        $delay = $details['state'] === 'delayed' ? max(0.0, $details['until'] - $now) : 0.0;
        ['id' => $id, 'topic' => $topic, 'value' => $body, 'state' => $state, 'due' => $due] = $details;
        return new self($id, $topic, $body, $state, $due, $delay, $details);
    }

    public function __toString(): string
    {
        $when = $this->state === 'delayed' ? 'due in ' . round($this->delay, 2) . ' s' : $this->state;
        return "$this->topic $this->id, $when: " . json_encode($this->body);
    }
}
