<?php

/**
 * A stand-in for the package open-telemetry/api, which the tests cannot install: no registry that they reach has it.
 *
 * It has the names and signatures that the client uses, and no more. Every span is recorded when it ends, in
 * Recorder::$spans. It shows what the client asks of the API, not that the API does what is asked.
 */

declare(strict_types=1);

namespace OpenTelemetry\Context {
    interface ContextInterface
    {
        public static function getCurrent(): ContextInterface;

        public function activate(): ScopeInterface;
    }

    interface ScopeInterface
    {
        public function detach(): int;
    }

    final class Context implements ContextInterface
    {
        /** @var list<self> the active ones; the last is current */
        public static array $active = [];

        public function __construct(public readonly ?\OpenTelemetry\API\Trace\SpanInterface $span = null)
        {
        }

        public static function getCurrent(): ContextInterface
        {
            self::$active[0] ??= new self();
            return self::$active[array_key_last(self::$active)];
        }

        public function activate(): ScopeInterface
        {
            self::getCurrent();
            self::$active[] = $this;
            return new class ($this) implements ScopeInterface {
                public function __construct(private readonly Context $context)
                {
                }

                public function detach(): int
                {
                    if (array_pop(Context::$active) !== $this->context) {
                        throw new \LogicException('another scope is active');
                    }
                    return 0;
                }
            };
        }
    }
}

namespace OpenTelemetry\API {
    use OpenTelemetry\API\Trace\Recorder;
    use OpenTelemetry\API\Trace\TracerProviderInterface;

    final class Globals
    {
        public static function tracerProvider(): TracerProviderInterface
        {
            return new Recorder();
        }
    }
}

namespace OpenTelemetry\API\Trace {
    use OpenTelemetry\Context\Context;
    use OpenTelemetry\Context\ContextInterface;
    use OpenTelemetry\Context\ScopeInterface;
    use Throwable;

    interface SpanKind
    {
        public const KIND_CLIENT = 1;
        public const KIND_PRODUCER = 3;
        public const KIND_CONSUMER = 4;
    }

    interface StatusCode
    {
        public const STATUS_ERROR = 'Error';
    }

    interface TracerProviderInterface
    {
        public function getTracer(
            string $name,
            ?string $version = null,
            ?string $schemaUrl = null,
            iterable $attributes = [],
        ): TracerInterface;
    }

    interface TracerInterface
    {
        public function spanBuilder(string $spanName): SpanBuilderInterface;
    }

    interface SpanBuilderInterface
    {
        public function setParent(ContextInterface|false|null $context): SpanBuilderInterface;

        public function addLink(SpanContext $context, iterable $attributes = []): SpanBuilderInterface;

        public function setAttributes(iterable $attributes): SpanBuilderInterface;

        public function setStartTimestamp(int $timestampNanos): SpanBuilderInterface;

        public function setSpanKind(int $spanKind): SpanBuilderInterface;

        public function startSpan(): SpanInterface;
    }

    interface SpanInterface
    {
        public static function fromContext(ContextInterface $context): SpanInterface;

        public function activate(): ScopeInterface;

        public function storeInContext(ContextInterface $context): ContextInterface;

        public function getContext(): SpanContext;

        public function setAttribute(string $key, bool|int|float|string|array|null $value): SpanInterface;

        public function addEvent(string $name, iterable $attributes = [], ?int $timestamp = null): SpanInterface;

        public function recordException(Throwable $exception, iterable $attributes = []): SpanInterface;

        public function setStatus(string $code, ?string $description = null): SpanInterface;

        public function end(?int $endEpochNanos = null): void;
    }

    final class SpanContext
    {
        public function __construct(
            public readonly string $trace = '',
            public readonly string $span = '',
            public readonly string $flags = '01',
            public readonly string $state = '',
        ) {
        }

        public function isValid(): bool
        {
            return $this->trace !== '';
        }
    }

    /** In the API, a span that only has a context is of a class of its own: get one by wrap(). */
    final class Span implements SpanInterface
    {
        /** @var array<string, mixed> what Recorder::$spans will have of it */
        public array $record = [];

        public function __construct(private readonly SpanContext $context)
        {
        }

        public static function wrap(SpanContext $context): self
        {
            return new self($context);
        }

        public static function fromContext(ContextInterface $context): SpanInterface
        {
            return $context->span ?? new self(new SpanContext());
        }

        public static function getCurrent(): SpanInterface
        {
            return self::fromContext(Context::getCurrent());
        }

        public function activate(): ScopeInterface
        {
            return $this->storeInContext(Context::getCurrent())->activate();
        }

        public function storeInContext(ContextInterface $context): ContextInterface
        {
            return new Context($this);
        }

        public function getContext(): SpanContext
        {
            return $this->context;
        }

        public function setAttribute(string $key, bool|int|float|string|array|null $value): SpanInterface
        {
            $this->record['attributes'][$key] = $value;
            return $this;
        }

        public function addEvent(string $name, iterable $attributes = [], ?int $timestamp = null): SpanInterface
        {
            $this->record['events'][] = [$name, (object) $attributes];
            return $this;
        }

        public function recordException(Throwable $exception, iterable $attributes = []): SpanInterface
        {
            return $this->addEvent('exception', ['type' => $exception::class]);
        }

        public function setStatus(string $code, ?string $description = null): SpanInterface
        {
            $this->record['status'] = [$code, $description];
            return $this;
        }

        public function end(?int $endEpochNanos = null): void
        {
            if (isset($this->record['end'])) {
                throw new \LogicException('the span has ended already');
            }
            $this->record['end'] = $endEpochNanos ?? Recorder::now();
            Recorder::$spans[] = $this->record;
        }
    }

    /** The provider, its tracer and the builder of a span in one. */
    final class Recorder implements TracerProviderInterface, TracerInterface, SpanBuilderInterface
    {
        /** @var list<array<string, mixed>> the spans that have ended, in order */
        public static array $spans = [];

        /** @var array<string, mixed> */
        private array $record = ['status' => null, 'attributes' => [], 'links' => [], 'events' => []];
        private ?ContextInterface $parent = null;

        public static function now(): int
        {
            return (int) (microtime(true) * 1e9);
        }

        public function getTracer(
            string $name,
            ?string $version = null,
            ?string $schemaUrl = null,
            iterable $attributes = [],
        ): TracerInterface {
            $this->record['scope'] = $name;
            return $this;
        }

        public function spanBuilder(string $spanName): SpanBuilderInterface
        {
            $this->record['name'] = $spanName;
            return $this;
        }

        public function setParent(ContextInterface|false|null $context): SpanBuilderInterface
        {
            $this->parent = $context;
            return $this;
        }

        public function addLink(SpanContext $context, iterable $attributes = []): SpanBuilderInterface
        {
            $this->record['links'][] = $context->span;
            return $this;
        }

        public function setAttributes(iterable $attributes): SpanBuilderInterface
        {
            $this->record['attributes'] = $attributes;
            return $this;
        }

        public function setStartTimestamp(int $timestampNanos): SpanBuilderInterface
        {
            $this->record['start'] = $timestampNanos;
            return $this;
        }

        public function setSpanKind(int $spanKind): SpanBuilderInterface
        {
            $this->record['kind'] = $spanKind;
            return $this;
        }

        public function startSpan(): SpanInterface
        {
            $parent = Span::fromContext($this->parent ?? Context::getCurrent())->getContext();
            $trace = $parent->isValid() ? $parent->trace : bin2hex(random_bytes(16));
            $span = new Span(new SpanContext($trace, bin2hex(random_bytes(8)), $parent->flags, $parent->state));
            $ids = ['trace' => $trace, 'id' => $span->getContext()->span, 'parent' => $parent->span];
            $span->record = $this->record + $ids + ['start' => Recorder::now()];
            return $span;
        }
    }
}

namespace OpenTelemetry\API\Trace\Propagation {
    use OpenTelemetry\API\Trace\Span;
    use OpenTelemetry\API\Trace\SpanContext;
    use OpenTelemetry\Context\ContextInterface;

    final class TraceContextPropagator
    {
        public const FIELDS = ['traceparent', 'tracestate'];

        public static function getInstance(): self
        {
            return new self();
        }

        public function inject(mixed &$carrier, ?object $setter = null, ?ContextInterface $context = null): void
        {
            $found = Span::fromContext($context)->getContext();
            if ($found->isValid()) {
                $carrier['traceparent'] = "00-$found->trace-$found->span-$found->flags";
            }
            if ($found->state !== '') {
                $carrier['tracestate'] = $found->state;
            }
        }

        public function extract(
            mixed $carrier,
            ?object $getter = null,
            ?ContextInterface $context = null,
        ): ContextInterface {
            $text = array_change_key_case($carrier)['traceparent'] ?? '';
            return preg_match('/^00-(\w{32})-(\w{16})-(\d\d)$/', $text, $parts)
                ? Span::wrap(new SpanContext(...array_slice($parts, 1)))->storeInContext($context)
                : $context;
        }
    }
}
