<?php

declare(strict_types=1);

namespace JobQueue\Client;

use JobQueue\Client\Exception\RefusedException;
use JobQueue\Client\Worker\Ending;
use JobQueue\Client\Worker\KeeperLink;
use JobQueue\Client\Worker\Loss;
use JobQueue\Client\Worker\Polling;
use JobQueue\Client\Worker\Report;
use JobQueue\Client\Worker\Service;
use JobQueue\Client\Worker\Signals;

/**
 * Takes jobs of the topics that it has handlers for, one at a time, runs the handler, and ends the job.
 *
 * A handler that returns finishes its job; Retry, Bury and Lost do what they say; any other error gives the job back
 * for its next try. With ext-pcntl and ext-posix, a child process keeps the job's lease alive while the handler runs,
 * and SIGTERM and SIGINT stop the worker in order.
 */
final class Worker
{
    /** Seconds to tell how a job ended, at least, also when the grace is over. */
    private const TELL_S = 1.0;

    /** @var array<string, callable(Job): mixed> by topic */
    private array $handlers = [];

    private readonly Exchange $exchange;
    private readonly string $name;
    private readonly Report $report;
    private readonly Service $service;
    private Polling $polling;
    private ?KeeperLink $keeper = null;

    private bool $stopping = false;
    /** By Clock; of a worker that is to stop. */
    private float $graceEnd = INF;
    private bool $handling = false;
    private bool $clean = true;

    /**
     * @param Client|string $client or the URL of the service
     * @param string|null $name at most 128 characters, of this process alone; null: host, pid and a random word
     * @param float $poll_s seconds that a poll waits, 60 at most
     * @param float $grace_s seconds for what runs, when the worker is to stop
     * @param float $heartbeat_s seconds between two heartbeats; 0: none
     * @param float $keep_alive_s seconds that one handler's lease is kept alive
     * @param (callable(string, array<string, mixed>): mixed)|null $on_event gets each event's name and fields
     * @param (callable(string): mixed)|null $log gets each line of the log; null: they go to standard error
     * @throws \InvalidArgumentException for an option that cannot be
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
        // A program that PHP reads from its standard input has no STDERR.
        $log ??= static fn (string $line) => defined('STDERR') ? fwrite(STDERR, "$line\n") : error_log($line);
        $this->report = new Report($this->name, $heartbeat_s, $on_event === null ? null : $on_event(...), $log(...));
        $this->service = new Service($this->exchange, $this->report);
    }

    /**
     * The handler of a topic's jobs; a topic has one.
     *
     * @param callable(Job): mixed $handler
     */
    public function on(string $topic, callable $handler): void
    {
        if (isset($this->handlers[$topic])) {
            throw new \LogicException("the topic $topic has a handler already");
        }
        $this->handlers[$topic] = $handler;
    }

    /**
     * Works until it is stopped. Call it once.
     *
     * @return bool whether all that ran had finished in time
     * @throws RefusedException that no repetition can help: a bad topic name
     */
    public function run(): bool
    {
        if ($this->handlers === []) {
            throw new \LogicException('a worker needs a handler: call on() first');
        }
        $topics = array_map(strval(...), array_keys($this->handlers)); // PHP made "7" a 7
        $this->polling = new Polling($this->exchange, $this->service, $this->name, $topics, $this->poll_s);
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

    /** No new job is begun; what runs may finish, for `grace_s`. For a handler, a hook or a signal to call. */
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
        if (KeeperLink::isPossible()) {
            $keeper = new KeeperLink(clone $this->exchange, $this->keep_alive_s);
            $keeper->start();
            $this->keeper = $keeper; // now that it is whole: a signal speaks to it
        }
    }

    private function endKeeper(): void
    {
        // First forgotten, then closed: a signal in between must not speak to it.
        [$keeper, $this->keeper] = [$this->keeper, null];
        $keeper?->close();
    }

    private function signalled(): void
    {
        if (!$this->stopping) {
            $this->stop();
        } elseif ($this->keeper?->abandoned() && $this->handling) {
            throw new Lost('stopping'); // out of the handler that does not end
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
        $ending = null;
        while ($ending !== null || !$this->stopping) {
            $this->report->heartbeat(0);
            $job = $ending === null ? $this->polled() : $this->ended($ending);
            $ending = null;
            // A job with ttr 0 cannot be given back: it would be gone.
            if ($job !== null && $this->stopping && $job->ttr > 0.0) {
                $this->service->giveBack($job, $this->telling());
            } elseif ($job !== null) {
                $ending = $this->handled($job);
            }
        }
    }

    /** The next job, waited for; null: none came in time. */
    private function polled(): ?Job
    {
        $this->keeper?->end();
        return $this->job($this->polling->answer($this->isStopping(...)));
    }

    /** Tells how a job ended, and takes the next one where there is one at once. */
    private function ended(Ending $ending): ?Job
    {
        $commands = [$ending->command];
        if ($this->stopping) {
            $this->keeper?->end();
        } else {
            $commands[] = $this->polling->pop();
        }
        $over = $this->telling();
        $answers = $this->service->answered($commands, $over, $over);
        $this->settle($ending, $answers[0] ?? null);
        $next = $answers[1] ?? null;
        return $next instanceof RefusedException ? null : $this->job($next); // the poll will be refused too, and say it
    }

    /** @return \Closure(): bool when to give up what is to be told from now on */
    private function telling(): \Closure
    {
        $soon = Clock::now() + self::TELL_S;
        return fn (): bool => Clock::now() >= max($this->graceEnd, $soon);
    }

    /** @param array<string, mixed>|null $answer */
    private function job(?array $answer): ?Job
    {
        return isset($answer['id']) ? Job::fromAnswer($answer, $this->loss(...)) : null;
    }

    /** How the handler ended, where that is still to be told. */
    private function handled(Job $job): ?Ending
    {
        $this->keeper?->begin($job, Clock::now());
        $late = round(microtime(true) - $job->due, 3);
        $fields = ['topic' => $job->topic, 'id' => $job->id, 'attempt' => $job->attempt, 'late_s' => $late];
        $this->report->event('job.started', $fields);
        $ending = Ending::of($this->handle(...), $job);
        if ($ending->command !== null) {
            return $ending;
        }
        $this->clean = $this->clean && $ending->reason !== 'stopping';
        $this->report->ended($ending->event, $ending, $ending->reason);
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

    /** @param array<string, mixed>|RefusedException|null $answer null: none came before the grace was over */
    private function settle(Ending $ending, array|RefusedException|null $answer): void
    {
        $this->clean = $this->clean && $answer !== null;
        if (is_array($answer) || ($answer !== null && $this->wasDoneBefore($ending, $answer))) {
            $this->report->ended($ending->event, $ending, $ending->reason);
        } else {
            $this->report->ended('lost', $ending, $answer === null ? 'stopping' : Loss::reason($answer) ?? 'expired');
        }
    }

    /** Whether the end of a job was refused only because it was sent before, and nobody heard the answer. */
    private function wasDoneBefore(Ending $ending, RefusedException $refusal): bool
    {
        $loss = Loss::reason($refusal);
        // A finish can be repeated as long as the service remembers the job.
        return $this->service->uncertain && ($ending->event === 'finished' ? $loss === 'deleted' : $loss !== null);
    }

    /** What Job::lost() says; it is a handler's way to let the heart beat, too. */
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
