<?php

declare(strict_types=1);

namespace JobQueue\Client;

use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Exception\UnreachableException;
use JobQueue\Client\Http\Exchange;
use JobQueue\Client\Worker\DeliverySpan;
use JobQueue\Client\Worker\Handlers;
use JobQueue\Client\Worker\Hooks;
use JobQueue\Client\Worker\LeaseKeeperLink;
use JobQueue\Client\Worker\Limits;
use JobQueue\Client\Worker\Log;
use JobQueue\Client\Worker\Loss;
use JobQueue\Client\Worker\Outbox;
use JobQueue\Client\Worker\Outcome;
use JobQueue\Client\Worker\Poll;
use JobQueue\Client\Worker\Report;
use JobQueue\Client\Worker\Signals;
use Psr\Log\LoggerInterface;

/**
 * Pops jobs of the topics that it has handlers for, one at a time, runs the handler, and ends the job.
 *
 * A handler that returns finishes its job; Retry, Bury and Lost do what they say; any other error releases the job for
 * its next try. With ext-pcntl and ext-posix, a child process keeps the job's lease alive while the handler runs, and
 * SIGTERM and SIGINT stop the worker gracefully.
 */
final class Worker
{
    /** The least time, in seconds, for sending the outcome of a job, even after the grace period. */
    private const SEND_S = 1.0;

    private readonly Exchange $exchange;
    private readonly string $name;
    private readonly Handlers $handlers;
    private readonly Hooks $hooks;
    private readonly Report $report;
    private readonly Outbox $outbox;
    private readonly ?Tracing $tracing;
    private Poll $poll;
    private Limits $limits;
    private ?LeaseKeeperLink $keeper = null;
    /** That of the current job; null if there is no tracing. */
    private ?DeliverySpan $span = null;

    private bool $stopping = false;
    /** The end of the grace period, by Clock. */
    private float $graceEnd = INF;
    private bool $handling = false;
    /** Handlers that have ended. */
    private int $handled = 0;
    private bool $clean = true;

    /**
     * @param Client|string|null $client a client, or the URL of the service; null if the options have `url` or `urls`
     * @param string|null $name 1 to 128 characters, unique to this process; null for host, pid and a random word
     * @param float $poll_s seconds for which a poll waits, above 0 and at most 60
     * @param float $grace_s seconds that a running handler gets once the worker must stop
     * @param float $heartbeat_s seconds between heartbeats; 0 for none
     * @param float $keep_alive_s seconds for which the lease of one handler is kept alive
     * @param int|null $max_jobs stops gracefully after this many jobs; null for no limit, here and below
     * @param float|null $max_time_s stops after this many seconds
     * @param float|null $memory_mb stops once this many megabytes of its process are in memory
     * @param LoggerInterface|null $logger null for lines on standard error
     * @param (callable(string, array<string, mixed>): mixed)|null $on_event receives each event's name and fields
     * @param (callable(\Throwable, Job): mixed)|null $on_error called if a handler threw none of Retry, Bury, Lost
     * @param (callable(Job, ?string, ?\Throwable): mixed)|null $on_death called if a job becomes a dead letter; without
     *                                                       an error if it was released because the worker stops
     * @param mixed ...$options those of a client, without `retry_for_s`: `token_file`, `ca_file`, `urls`, …
     * @throws \InvalidArgumentException for an invalid option
     */
    public function __construct(
        Client|string|null $client = null,
        ?string $name = null,
        private readonly float $poll_s = 20.0,
        private readonly float $grace_s = 25.0,
        float $heartbeat_s = 60.0,
        private readonly float $keep_alive_s = 3600.0,
        private readonly ?int $max_jobs = null,
        private readonly ?float $max_time_s = null,
        private readonly ?float $memory_mb = null,
        ?LoggerInterface $logger = null,
        ?callable $on_event = null,
        ?callable $on_error = null,
        ?callable $on_death = null,
        #[\SensitiveParameter] mixed ...$options,
    ) {
        $this->name = $name ?? gethostname() . ':' . getmypid() . ':' . bin2hex(random_bytes(4));
        Options::name($this->name);
        Options::above0('poll_s', $poll_s, 60.0);
        Options::from0('grace_s', $grace_s);
        Options::from0('heartbeat_s', $heartbeat_s);
        Options::from0('keep_alive_s', $keep_alive_s);
        $max_jobs === null || Options::jobs('max_jobs', $max_jobs);
        $max_time_s === null || Options::above0('max_time_s', $max_time_s);
        $memory_mb === null || Options::megabytes('memory_mb', $memory_mb);
        $this->exchange = self::client($client, $options)->exchange();
        $this->handlers = new Handlers();
        $log = new Log($logger);
        $closure = static fn (?callable $hook): ?\Closure => $hook === null ? null : $hook(...);
        $this->hooks = new Hooks($log, $closure($on_event), $closure($on_error), $closure($on_death));
        $this->report = new Report($this->name, $heartbeat_s, $this->hooks, $log);
        $this->outbox = new Outbox($this->exchange, $this->report);
        $this->tracing = Tracing::find();
    }

    /** @param array<string, mixed> $options */
    private static function client(
        #[\SensitiveParameter] Client|string|null $client,
        #[\SensitiveParameter] array $options,
    ): Client {
        if (array_key_exists('retry_for_s', $options)) {
            throw new \InvalidArgumentException('retry_for_s is not an option of a worker: it never gives up');
        }
        if ($client instanceof Client && $options !== []) {
            $message = key($options) . ' is an option of the client: give it to that, or give the worker a URL';
            throw new \InvalidArgumentException($message);
        }
        $url = $client === null ? [] : ['url' => $client];
        return $client instanceof Client ? $client : new Client(...$url, ...$options);
    }

    /**
     * Registers the handler of a topic's jobs; a topic has one.
     *
     * @param callable(Job): mixed $handler
     */
    public function job(string $topic, callable $handler): void
    {
        $this->handlers->add($topic, $handler);
    }

    /**
     * Registers a middleware around every handler; the first one registered is outermost.
     *
     * @param callable(Job, callable(Job): mixed): mixed $middleware calls `$next($job)`, which handles the job
     */
    public function use(callable $middleware): void
    {
        $this->handlers->around($middleware);
    }

    /** @internal for the test kit */
    public function handlers(): Handlers
    {
        return $this->handlers;
    }

    /** @internal for the test kit */
    public function hooks(): Hooks
    {
        return $this->hooks;
    }

    /**
     * Works until it is stopped. Call it once.
     *
     * @return bool whether all jobs ended within the grace period
     * @throws RefusedException if no retry can help, such as for an invalid topic name
     */
    public function run(): bool
    {
        $topics = $this->handlers->topics();
        if ($topics === []) {
            throw new \LogicException('the worker has no handler: register one with job()');
        }
        $this->limits = new Limits($this->max_jobs, $this->max_time_s, $this->memory_mb);
        $this->poll = new Poll($this->exchange, $this->outbox, $this->name, $topics, $this->poll_s);
        $signals = Signals::arePossible() ? new Signals($this->signalled(...)) : null;
        try {
            $this->startKeeper();
            $this->report->worker('started');
            $this->work();
        } finally {
            $this->endKeeper();
            $signals?->restore();
            $this->report->stopped();
        }
        return $this->clean;
    }

    /** Starts no new job; a running handler has `grace_s` seconds left. Call it from a handler, a hook or a signal. */
    public function stop(): void
    {
        $this->stopFor('stop');
    }

    /** @param string $reason signal, stop, max_jobs, max_time or memory */
    private function stopFor(string $reason): void
    {
        if (!$this->stopping) {
            $this->stopping = true;
            $this->endGraceAt(Clock::now() + $this->grace_s);
            $this->report->worker('stopping', ['reason' => $reason]);
        }
    }

    private function startKeeper(): void
    {
        if (LeaseKeeperLink::isPossible()) {
            $keeper = new LeaseKeeperLink(clone $this->exchange, $this->keep_alive_s);
            $keeper->start();
            $this->keeper = $keeper; // only once it has started: a signal handler uses it
        }
    }

    private function endKeeper(): void
    {
        // Unset before it is closed: a signal handler in between must not use it.
        [$keeper, $this->keeper] = [$this->keeper, null];
        $keeper?->close();
    }

    private function signalled(): void
    {
        if (!$this->stopping) {
            $this->stopFor('signal');
        } elseif ($this->keeper?->abandoned() && $this->handling) {
            throw new Lost('stopping'); // interrupts a handler that does not end
        } elseif (!$this->graceIsOver()) {
            $this->endGraceAt(Clock::now());
        }
    }

    private function endGraceAt(float $time): void
    {
        $this->graceEnd = $time;
        $this->keeper?->grace($time);
    }

    private function work(): void
    {
        $outcome = null;
        while (!$this->isStopping() || $outcome !== null) {
            $job = $outcome === null ? $this->polled() : $this->ended($outcome);
            $outcome = null;
            // A job with ttr 0 cannot be released: it would be lost.
            if ($job !== null && $this->stopping && $job->ttr > 0.0) {
                $this->outbox->giveBack($job, $this->sendLimit());
            } elseif ($job !== null) {
                $outcome = $this->handled($job);
            }
        }
    }

    /** Waits for the next job; null if none arrived in time. */
    private function polled(): ?Job
    {
        $this->keeper?->end();
        return $this->popped($this->poll->answer($this->isStopping(...)));
    }

    /** Sends the outcome of a job; returns the next job if one is ready. */
    private function ended(Outcome $outcome): ?Job
    {
        $commands = [$outcome->command];
        if ($this->stopping) {
            $this->keeper?->end();
        } else {
            $commands[] = $this->poll->pop();
        }
        $answers = $this->sent($commands);
        $this->settle($outcome, $answers[0] ?? null);
        $next = $answers[1] ?? null;
        // A refused pop is ignored: the next poll will be refused too, and report it.
        return $next instanceof RefusedException ? null : $this->popped($next);
    }

    /**
     * @param list<array<string, mixed>> $commands the end of a job, and perhaps a pop
     * @return list<array<string, mixed>|RefusedException|null> as Outbox::answered()
     */
    private function sent(array $commands): array
    {
        $over = $this->sendLimit();
        $this->span?->settling($commands[0]['command']);
        try {
            return $this->outbox->answered($commands, $over, $over);
        } catch (RefusedException $error) {
            $this->span?->close($error);
            throw $error; // ends the worker
        }
    }

    /** @return \Closure(): bool true once the worker must give up sending */
    private function sendLimit(): \Closure
    {
        $soon = Clock::now() + self::SEND_S;
        return function () use ($soon): bool {
            $this->report->heartbeat(0);
            return Clock::now() >= max($this->graceEnd, $soon);
        };
    }

    /** @param array<string, mixed>|null $answer */
    private function popped(?array $answer): ?Job
    {
        if (!isset($answer['id'])) {
            return null;
        }
        $this->tracing?->received([$answer], $this->outbox->sentAt, counted: false);
        return Job::fromAnswer($answer, $this->loss(...));
    }

    /** Runs the handler; returns its outcome if there is one to send. */
    private function handled(Job $job): ?Outcome
    {
        $this->keeper?->begin($job, Clock::now());
        $this->report->started($job);
        $this->span = $this->tracing === null ? null : new DeliverySpan($this->tracing, $job);
        $handle = $this->handle(...);
        $outcome = Outcome::of($this->span?->around($handle) ?? $handle, $job);
        $this->handled++;
        if ($outcome->error !== null && !$outcome->isWord()) {
            $this->hooks->error($outcome->error, $job);
        }
        if ($outcome->command !== null) {
            return $outcome;
        }
        $this->clean = $this->clean && $outcome->reason !== 'stopping';
        if ($outcome->event === 'lost') {
            $this->lost($outcome, (string) $outcome->reason);
        } else {
            $this->span?->ended($outcome);
            $this->report->ended($outcome);
        }
        return null;
    }

    private function lost(Outcome $outcome, string $reason): void
    {
        $died = $reason === 'stopping' && $this->keeper?->died();
        $this->span?->lost($reason, died: $died);
        $this->report->lost($outcome, $reason);
        $died && $this->report->died($outcome, $reason);
    }

    private function handle(Job $job): void
    {
        try {
            $this->handling = true;
            $this->handlers->handle($job);
        } finally {
            $this->handling = false;
        }
    }

    /** @param array<string, mixed>|RefusedException|null $answer null if none arrived in the grace period */
    private function settle(Outcome $outcome, array|RefusedException|null $answer): void
    {
        $this->clean = $this->clean && $answer !== null;
        $state = is_array($answer) ? $answer['state'] ?? null : $answer?->state;
        if (is_array($answer) || ($answer !== null && $this->wasDoneBefore($outcome, $answer))) {
            $died = $outcome->died($state);
            $this->span?->ended($outcome, $died);
            $this->report->ended($outcome, $died);
        } else {
            $reason = $answer === null ? 'stopping' : Loss::reason($answer) ?? 'expired';
            $this->span?->lost($reason, $answer ?? new UnreachableException('no answer in time', maybe_done: true));
            $this->report->lost($outcome, $reason);
        }
    }

    /** Whether the refusal only means that an earlier attempt was executed and its answer was lost. */
    private function wasDoneBefore(Outcome $outcome, RefusedException $refusal): bool
    {
        $loss = Loss::reason($refusal);
        // A repeated finish succeeds for as long as the service remembers the job.
        return $this->outbox->uncertain && ($outcome->event === 'finished' ? $loss === 'deleted' : $loss !== null);
    }

    /** The value of Job::lost(). A handler that calls it also lets the heartbeat be reported. */
    private function loss(): ?string
    {
        $this->report->heartbeat($this->handling ? 1 : 0);
        return $this->keeper?->lost();
    }

    private function graceIsOver(): bool
    {
        return Clock::now() >= $this->graceEnd;
    }

    /** Also takes care of the heartbeat and the limits while no handler runs. */
    private function isStopping(): bool
    {
        $this->report->heartbeat(0);
        $limit = $this->limits->reached($this->handled);
        $limit === null || $this->stopFor($limit);
        return $this->stopping;
    }
}
