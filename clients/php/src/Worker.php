<?php

declare(strict_types=1);

namespace JobQueue\Client;

use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Http\Exchange;
use JobQueue\Client\Worker\LeaseKeeperLink;
use JobQueue\Client\Worker\Loss;
use JobQueue\Client\Worker\Outbox;
use JobQueue\Client\Worker\Outcome;
use JobQueue\Client\Worker\Poll;
use JobQueue\Client\Worker\Report;
use JobQueue\Client\Worker\Signals;

/**
 * Pops jobs of the topics that it has handlers for, one at a time, runs the handler, and ends the job.
 *
 * A handler that returns finishes its job; Retry, Bury and Lost do what they say; any other error releases the job for
 * its next try. With ext-pcntl and ext-posix, a child process keeps the job's lease alive while the handler runs, and
 * SIGTERM and SIGINT stop the worker in order.
 */
final class Worker
{
    /** The least time in seconds to send the outcome of a job, even after the grace period. */
    private const SEND_S = 1.0;

    /** @var array<string, callable(Job): mixed> by topic */
    private array $handlers = [];

    private readonly Exchange $exchange;
    private readonly string $name;
    private readonly Report $report;
    private readonly Outbox $outbox;
    private Poll $poll;
    private ?LeaseKeeperLink $keeper = null;

    private bool $stopping = false;
    /** The end of the grace period, by Clock. */
    private float $graceEnd = INF;
    private bool $handling = false;
    private bool $clean = true;

    /**
     * @param Client|string $client a client, or the URL of the service
     * @param string|null $name 1 to 128 characters, unique to this process; null: host, pid and a random word
     * @param float $poll_s seconds for which a poll waits, above 0 and at most 60
     * @param float $grace_s seconds that a running handler gets once the worker is to stop
     * @param float $heartbeat_s seconds between heartbeats; 0: none
     * @param float $keep_alive_s seconds for which the lease of one handler is kept alive
     * @param (callable(string, array<string, mixed>): mixed)|null $on_event receives each event's name and fields
     * @param (callable(string): mixed)|null $log receives each log line; null: standard error
     * @throws \InvalidArgumentException for an invalid option
     */
    public function __construct(
        Client|string $client,
        ?string $name = null,
        private readonly float $poll_s = 20.0,
        private readonly float $grace_s = 25.0,
        float $heartbeat_s = 60.0,
        private readonly float $keep_alive_s = 3600.0,
        ?callable $on_event = null,
        ?callable $log = null,
    ) {
        $this->name = $name ?? gethostname() . ':' . getmypid() . ':' . bin2hex(random_bytes(4));
        Options::name($this->name);
        Options::above0('poll_s', $poll_s, 60.0);
        Options::from0('grace_s', $grace_s);
        Options::from0('heartbeat_s', $heartbeat_s);
        Options::from0('keep_alive_s', $keep_alive_s);
        $this->exchange = (is_string($client) ? new Client($client) : $client)->exchange();
        // A program that PHP reads from standard input has no STDERR.
        $log ??= static fn (string $line) => defined('STDERR') ? fwrite(STDERR, "$line\n") : error_log($line);
        $this->report = new Report($this->name, $heartbeat_s, $on_event === null ? null : $on_event(...), $log(...));
        $this->outbox = new Outbox($this->exchange, $this->report);
    }

    /**
     * Registers the handler of a topic's jobs; a topic has one.
     *
     * @param callable(Job): mixed $handler
     */
    public function on(string $topic, callable $handler): void
    {
        if (isset($this->handlers[$topic])) {
            throw new \LogicException("the topic $topic already has a handler");
        }
        $this->handlers[$topic] = $handler;
    }

    /**
     * Works until it is stopped. Call it once.
     *
     * @return bool whether all jobs ended within the grace period
     * @throws RefusedException that no retry can help, such as for an invalid topic name
     */
    public function run(): bool
    {
        if ($this->handlers === []) {
            throw new \LogicException('the worker has no handler: register one with on()');
        }
        $topics = array_map(strval(...), array_keys($this->handlers)); // PHP turns the key "7" into 7
        $this->poll = new Poll($this->exchange, $this->outbox, $this->name, $topics, $this->poll_s);
        $signals = Signals::arePossible() ? new Signals($this->signalled(...)) : null;
        try {
            $this->startKeeper();
            $this->report->worker('started');
            $this->work();
        } finally {
            $this->endKeeper();
            $signals?->restore();
            $this->report->worker('stopped');
        }
        return $this->clean;
    }

    /** Starts no new job; the running handler may finish, for `grace_s`. Call it from a handler, a hook or a signal. */
    public function stop(): void
    {
        if (!$this->stopping) {
            $this->stopping = true;
            $this->endGraceAt(Clock::now() + $this->grace_s);
            $this->report->worker('stopping');
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
            $this->stop();
        } elseif ($this->keeper?->abandoned() && $this->handling) {
            throw new Lost('stopping'); // interrupts the handler that does not end
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
        while ($outcome !== null || !$this->stopping) {
            $this->report->heartbeat(0);
            $job = $outcome === null ? $this->polled() : $this->ended($outcome);
            $outcome = null;
            // A job with ttr 0 cannot be given back: it would be lost.
            if ($job !== null && $this->stopping && $job->ttr > 0.0) {
                $this->outbox->giveBack($job, $this->sendLimit());
            } elseif ($job !== null) {
                $outcome = $this->handled($job);
            }
        }
    }

    /** Waits for the next job; null: none arrived in time. */
    private function polled(): ?Job
    {
        $this->keeper?->end();
        return $this->job($this->poll->answer($this->isStopping(...)));
    }

    /** Sends the outcome of a job, and takes the next one if one is ready. */
    private function ended(Outcome $outcome): ?Job
    {
        $commands = [$outcome->command];
        if ($this->stopping) {
            $this->keeper?->end();
        } else {
            $commands[] = $this->poll->pop();
        }
        $over = $this->sendLimit();
        $answers = $this->outbox->answered($commands, $over, $over);
        $this->settle($outcome, $answers[0] ?? null);
        $next = $answers[1] ?? null;
        // A refused pop is ignored: the next poll will be refused too, and report it.
        return $next instanceof RefusedException ? null : $this->job($next);
    }

    /** @return \Closure(): bool whether to give up what is sent from now on */
    private function sendLimit(): \Closure
    {
        $soon = Clock::now() + self::SEND_S;
        return fn (): bool => Clock::now() >= max($this->graceEnd, $soon);
    }

    /** @param array<string, mixed>|null $answer */
    private function job(?array $answer): ?Job
    {
        return isset($answer['id']) ? Job::fromAnswer($answer, $this->loss(...)) : null;
    }

    /** Runs the handler; gives its outcome if there is one to send. */
    private function handled(Job $job): ?Outcome
    {
        $this->keeper?->begin($job, Clock::now());
        $late = round(microtime(true) - $job->due, 3);
        $fields = ['topic' => $job->topic, 'id' => $job->id, 'attempt' => $job->attempt, 'late_s' => $late];
        $this->report->event('job.started', $fields);
        $outcome = Outcome::of($this->handle(...), $job);
        if ($outcome->command !== null) {
            return $outcome;
        }
        $this->clean = $this->clean && $outcome->reason !== 'stopping';
        $this->report->ended($outcome->event, $outcome, $outcome->reason);
        return null;
    }

    private function handle(Job $job): void
    {
        try {
            $this->handling = true;
            ($this->handlers[$job->topic])($job);
        } finally {
            $this->handling = false;
        }
    }

    /** @param array<string, mixed>|RefusedException|null $answer null: none arrived before the grace period was over */
    private function settle(Outcome $outcome, array|RefusedException|null $answer): void
    {
        $this->clean = $this->clean && $answer !== null;
        if (is_array($answer) || ($answer !== null && $this->wasDoneBefore($outcome, $answer))) {
            $this->report->ended($outcome->event, $outcome, $outcome->reason);
        } else {
            $this->report->ended('lost', $outcome, $answer === null ? 'stopping' : Loss::reason($answer) ?? 'expired');
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

    private function isStopping(): bool
    {
        $this->report->heartbeat(0);
        return $this->stopping;
    }
}
