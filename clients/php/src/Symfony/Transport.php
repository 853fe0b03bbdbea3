<?php

declare(strict_types=1);

namespace JobQueue\Client\Symfony;

use Closure;
use JobQueue\Client\Client;
use JobQueue\Client\Exception\JobQueueException;
use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Job;
use JobQueue\Client\Worker\Loss;
use JobQueue\Client\Worker\Outcome;
use LogicException;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Exception\MessageDecodingFailedException;
use Symfony\Component\Messenger\Exception\TransportException;
use Symfony\Component\Messenger\Stamp\DelayStamp;
use Symfony\Component\Messenger\Stamp\TransportMessageIdStamp;
use Symfony\Component\Messenger\Transport\Receiver\MessageCountAwareInterface;
use Symfony\Component\Messenger\Transport\Serialization\SerializerInterface;
use Symfony\Component\Messenger\Transport\TransportInterface;

/**
 * A transport of Symfony Messenger: its messages are jobs of one topic.
 *
 * Messenger counts the tries of a message, and sends a copy for each try, so its jobs have no limit of tries in the
 * service.
 */
class Transport implements TransportInterface, MessageCountAwareInterface
{
    /**
     * @param Client $ends the client that sends the ends of messages
     * @param float $ttr seconds until a message whose worker died is delivered again
     * @param float $wait seconds for which get() waits for a message
     */
    final public function __construct(
        private readonly Client $client,
        private readonly Client $ends,
        private readonly SerializerInterface $serializer,
        private readonly string $topic,
        private readonly float $ttr,
        private readonly float $wait,
    ) {
    }

    public function send(Envelope $envelope): Envelope
    {
        // An id makes the add safe to repeat.
        $id = "$this->topic:" . bin2hex(random_bytes(10));
        $delay = ($envelope->last(DelayStamp::class)?->getDelay() ?? 0) / 1000;
        $body = $this->serializer->encode($envelope);
        self::told(fn () => $this->client->add($this->topic, $body, max(0, $delay), $id, ttr: $this->ttr, tries: 0));
        return $envelope->with(new TransportMessageIdStamp($id));
    }

    /** @return list<Envelope> */
    public function get(): iterable
    {
        $worker = gethostname() . ':' . getmypid();
        $job = self::told(fn () => $this->client->pop($this->topic, wait: $this->wait, worker: $worker));
        return $job === null ? [] : [$this->decoded($job)->with(
            new TransportMessageIdStamp($job->id),
            new ReservedStamp($job),
        )];
    }

    public function ack(Envelope $envelope): void
    {
        self::unlessLost(fn () => $this->ends->finish(self::job($envelope)));
    }

    /** Messenger rejects a failed message after it has sent a copy, to be retried or kept as failed. */
    public function reject(Envelope $envelope): void
    {
        $this->ack($envelope);
    }

    /** Renews the lease: for its TTR, or for $seconds if that is longer. */
    public function keepalive(Envelope $envelope, ?int $seconds = null): void
    {
        $job = self::job($envelope);
        self::told(fn () => $this->client->touch($job, ttr: max($seconds ?? 0, $job->ttr)));
    }

    public function getMessageCount(): int
    {
        $counts = self::told(fn () => (array) $this->client->stats($this->topic)['counts']);
        return $counts['delayed'] + $counts['ready'];
    }

    /** @throws MessageDecodingFailedException after burying the job: no retry can help, and nothing is lost */
    private function decoded(Job $job): Envelope
    {
        try {
            return $this->serializer->decode(is_array($job->body) ? $job->body : []);
        } catch (MessageDecodingFailedException $error) {
            $reason = Outcome::fitting('cannot be decoded: ' . $error->getMessage());
            self::unlessLost(fn () => $this->ends->bury($job, reason: $reason));
            throw $error;
        }
    }

    private static function job(Envelope $envelope): Job
    {
        return $envelope->last(ReservedStamp::class)?->job
            ?? throw new LogicException('the message was not received from this transport');
    }

    /** Sends an end, which is ignored if the lease is over: then the message belongs to another worker. */
    private static function unlessLost(Closure $end): void
    {
        self::told(static function () use ($end): void {
            try {
                $end();
            } catch (RefusedException $refusal) {
                Loss::reason($refusal) !== null || throw $refusal;
            }
        });
    }

    /**
     * @template Answer
     * @param Closure(): Answer $call
     * @return Answer
     */
    private static function told(Closure $call): mixed
    {
        try {
            return $call();
        } catch (JobQueueException $error) {
            throw new TransportException($error->getMessage(), 0, $error);
        }
    }
}
