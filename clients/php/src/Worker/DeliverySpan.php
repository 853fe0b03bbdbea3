<?php

declare(strict_types=1);

namespace JobQueue\Client\Worker;

use Closure;
use JobQueue\Client\Bury;
use JobQueue\Client\Job;
use JobQueue\Client\Lost;
use JobQueue\Client\Retry;
use JobQueue\Client\Tracing;
use OpenTelemetry\API\Trace\Span;
use OpenTelemetry\API\Trace\SpanInterface;
use OpenTelemetry\Context\Context;
use OpenTelemetry\Context\ContextInterface;
use Throwable;

/**
 * The span `process` of a delivery, from the start of its handler until the service has answered how the job ended, and
 * its child `settle`, the sending of this end.
 *
 * @internal
 */
final class DeliverySpan
{
    private readonly SpanInterface $span;
    private readonly ContextInterface $context;
    private ?SpanInterface $settle = null;

    /** Starts the span. */
    public function __construct(private readonly Tracing $tracing, private readonly Job $job)
    {
        $attempt = ['messaging.jobqueue.attempt' => $job->attempt];
        $span = $this->tracing->span('process', $job->topic, $attempt + ['messaging.message.id' => $job->id]);
        $parent = Tracing::parent($job->headers ?? []);
        if ($parent !== null) {
            $span->setParent($parent)->addLink(Span::fromContext($parent)->getContext());
        }
        $this->span = $span->startSpan();
        $this->context = $this->span->storeInContext($parent ?? Context::getCurrent());
        if ($job->attempt > 1 || $job->ready !== null) {
            $this->span->addEvent('jobqueue.redelivery', $attempt);
        }
    }

    /**
     * The handler, with this span as the current one while it runs. What it throws is thrown on.
     *
     * @param Closure(Job): mixed $handler
     * @return Closure(Job): mixed
     */
    public function around(Closure $handler): Closure
    {
        return function (Job $job) use ($handler): void {
            $scope = $this->context->activate();
            try {
                $handler($job);
            } catch (Retry | Bury | Lost $word) {
                throw $word;
            } catch (Throwable $error) {
                $this->span->recordException($error);
                Tracing::failed($this->span, $error, $error::class);
                throw $error;
            } finally {
                $scope->detach();
            }
        };
    }

    /** The end of the job is about to be sent. @param string $command finish, release or bury */
    public function settling(string $command): void
    {
        $id = ['messaging.message.id' => $this->job->id];
        $this->settle = $this->tracing->span($command, $this->job->topic, $id)->setParent($this->context)->startSpan();
    }

    /** @param bool $died as in Report::ended */
    public function ended(Outcome $outcome, bool $died = false): void
    {
        if ($died || $outcome->event === 'buried') {
            $this->died($outcome->reasonOfDeath());
        }
        $this->close();
    }

    /**
     * The job was lost.
     *
     * @param string $reason as Job::lost() returns it
     * @param Throwable|null $error why the end was not accepted; null if none was sent
     * @param bool $died true if the job became a dead letter
     */
    public function lost(string $reason, ?Throwable $error = null, bool $died = false): void
    {
        $this->span->addEvent('jobqueue.lost', ['reason' => $reason]);
        $died && $this->died($reason);
        $this->close($error);
    }

    /** Ends the spans. @param Throwable|null $error why the end of the job was not accepted; null if it was */
    public function close(?Throwable $error = null): void
    {
        if ($this->settle !== null) {
            $error === null || Tracing::failed($this->settle, $error);
            $this->settle->end();
        }
        $this->span->end();
    }

    private function died(?string $reason): void
    {
        $this->span->addEvent('jobqueue.dead_letter', $reason === null ? [] : ['reason' => $reason]);
    }
}
