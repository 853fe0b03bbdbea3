<?php

declare(strict_types=1);

namespace JobQueue\Client;

use JobQueue\Client\Exception\RefusedException;
use OpenTelemetry\API\Globals;
use OpenTelemetry\API\Trace\Propagation\TraceContextPropagator;
use OpenTelemetry\API\Trace\Span;
use OpenTelemetry\API\Trace\SpanBuilderInterface;
use OpenTelemetry\API\Trace\SpanInterface;
use OpenTelemetry\API\Trace\SpanKind;
use OpenTelemetry\API\Trace\StatusCode;
use OpenTelemetry\Context\Context;
use OpenTelemetry\Context\ContextInterface;

/**
 * The spans of the client, and the W3C trace context in the headers of jobs.
 *
 * It exists only in a program that has the package open-telemetry/api; while no SDK is set up, the spans do nothing.
 *
 * @internal
 */
final class Tracing
{
    private const SCOPE = 'jobqueue/client';
    /** The most that the service accepts. */
    private const MOST_HEADERS = 16;
    private const MOST_CHARACTERS = 128;
    private const MOST_LINKS = 128;
    /** By the name of the operation. */
    private const TYPES = [
        'add' => 'send',
        'pop' => 'receive',
        'process' => 'process',
        'finish' => 'settle',
        'release' => 'settle',
        'bury' => 'settle',
    ];

    /** Returns null without open-telemetry/api. */
    public static function find(): ?self
    {
        return class_exists(Globals::class) ? new self() : null;
    }

    /**
     * A span that is not started yet.
     *
     * @param string $operation a command, or `process` for a handler
     * @param string|null $topic null if it is unknown, or if there are several
     * @param array<string, bool|int|string|null> $attributes those that are null are left out
     */
    public function span(string $operation, ?string $topic, array $attributes = []): SpanBuilderInterface
    {
        $type = self::TYPES[$operation];
        $attributes += [
            'messaging.system' => 'jobqueue',
            'messaging.operation.name' => $operation,
            'messaging.operation.type' => $type,
            'messaging.destination.name' => $topic,
        ];
        // The tracer is not kept: a program may set up its SDK after it has made a client.
        return Globals::tracerProvider()->getTracer(self::SCOPE)
            ->spanBuilder($topic === null ? $type : "$type $topic")
            ->setSpanKind(match ($type) {
                'send' => SpanKind::KIND_PRODUCER,
                'process' => SpanKind::KIND_CONSUMER,
                default => SpanKind::KIND_CLIENT,
            })
            ->setAttributes(array_filter($attributes, static fn (mixed $value): bool => $value !== null));
    }

    /**
     * Records that a pop returned jobs.
     *
     * @param list<array<string, mixed>> $jobs as in the answer; if there is none, there is no span
     * @param float $since when the pop was sent, by Clock
     * @param bool $counted whether the pop had a count
     */
    public function received(array $jobs, float $since, bool $counted): void
    {
        if ($jobs === []) {
            return;
        }
        $span = $this->span('pop', self::single(array_column($jobs, 'topic')), [
            'messaging.message.id' => $counted ? null : $jobs[0]['id'],
            'messaging.batch.message_count' => $counted ? count($jobs) : null,
        ]);
        $parents = array_map(static fn (array $job): ?ContextInterface => self::parent((array) $job['headers']), $jobs);
        foreach (array_slice(array_filter($parents), 0, self::MOST_LINKS) as $parent) {
            $span->addLink(Span::fromContext($parent)->getContext());
        }
        // Both ends are set: the SDK's clock may be some seconds off the system's in a process that runs for days.
        $end = (int) (microtime(true) * 1e9);
        $span->setStartTimestamp($end - (int) ((Clock::now() - $since) * 1e9))->startSpan()->end($end);
    }

    /**
     * An add with the context of the current span in its headers, as by injected(); without open-telemetry/api, as it is.
     *
     * @param array<string, mixed> $add
     * @return array<string, mixed>
     */
    public static function withCurrent(array $add): array
    {
        return class_exists(Globals::class) ? self::injected($add, Span::getCurrent()) : $add;
    }

    /**
     * An add with the context of a span in its headers, unless they have one already, or have no room for it.
     *
     * @param array<string, mixed> $add
     * @return array<string, mixed>
     */
    public static function injected(array $add, SpanInterface $span): array
    {
        $given = $add['headers'] ?? new \stdClass();
        if (!$given instanceof \stdClass && (!is_array($given) || array_is_list($given))) {
            return $add; // not an object in JSON: the service will refuse it
        }
        $headers = (array) $given;
        $names = array_map(static fn (int|string $name): string => strtolower((string) $name), array_keys($headers));
        if (array_intersect(TraceContextPropagator::FIELDS, $names) !== []) {
            return $add;
        }
        $context = [];
        $where = $span->storeInContext(Context::getCurrent());
        TraceContextPropagator::getInstance()->inject($context, null, $where);
        foreach ($context as $name => $value) { // traceparent comes first
            if (count($headers) < self::MOST_HEADERS && strlen($value) <= self::MOST_CHARACTERS) {
                $headers[$name] = $value;
            }
        }
        return $context === [] ? $add : ['headers' => (object) $headers] + $add;
    }

    /**
     * The current context, with the span that added a job as its parent; null if the job's headers name no valid one.
     *
     * @param array<string, string> $headers
     */
    public static function parent(array $headers): ?ContextInterface
    {
        $current = Context::getCurrent();
        $found = TraceContextPropagator::getInstance()->extract($headers, null, $current);
        return $found === $current ? null : $found; // without a valid context, the same one is returned
    }

    /** @param string|null $type the `error.type`; null for the service's code, or the error's class if it has none */
    public static function failed(SpanInterface $span, \Throwable $error, ?string $type = null): void
    {
        $code = $error instanceof RefusedException ? $error->error_code : '';
        $span->setStatus(StatusCode::STATUS_ERROR, $error->getMessage());
        $span->setAttribute('error.type', $type ?? ($code === '' ? $error::class : $code));
    }

    /**
     * The topic, if it is the same for all.
     *
     * @param array<mixed> $topics not checked: a batch may contain anything
     */
    public static function single(array $topics): ?string
    {
        $first = reset($topics);
        $others = array_filter($topics, static fn (mixed $topic): bool => $topic !== $first);
        return is_string($first) && $others === [] ? $first : null;
    }
}
