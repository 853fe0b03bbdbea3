"""The driver for Laravel's queues: its jobs, dispatched, delayed, released and failed by the real Laravel."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.php.program import need, told
from tests.kit.service import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")

APP = """
set_error_handler(fn (int $level) => ($level & (E_DEPRECATED | E_USER_DEPRECATED)) !== 0); // Laravel 8 on PHP 8.2
foreach (['Queue', 'Events', 'Bus'] as $part) {
    require "Illuminate/$part/autoload.php";
}

use Illuminate\\Bus\\Queueable;
use Illuminate\\Container\\Container;
use Illuminate\\Contracts\\Queue\\ShouldQueue;
use Illuminate\\Queue\\InteractsWithQueue;
use Illuminate\\Queue\\WorkerOptions;

final class CloseOrder implements ShouldQueue
{
    use InteractsWithQueue;
    use Queueable;

    public function __construct(public int $order)
    {
    }

    public function handle(): void
    {
        ($GLOBALS['handle'])($this);
    }

    public function failed(Throwable $error): void
    {
        ($GLOBALS['tell'])(['failed', $this->order, $error->getMessage()]);
    }
}

final class Reports implements Illuminate\\Contracts\\Debug\\ExceptionHandler
{
    public function report(Throwable $e)
    {
        ($GLOBALS['tell'])(['report', $e->getMessage()]);
    }

    public function shouldReport(Throwable $e)
    {
        return true;
    }

    public function render($request, Throwable $e)
    {
    }

    public function renderForConsole($output, Throwable $e)
    {
    }
}

$app = new Container();
Container::setInstance($app);
$app->instance(Illuminate\\Contracts\\Container\\Container::class, $app);
$app->instance('config', new Illuminate\\Support\\Fluent([
    'queue.default' => 'jobqueue',
    'queue.connections.jobqueue' => ['driver' => 'jobqueue', 'url' => $url, 'queue' => 'orders', 'retry_after' => 60],
]));
$events = new Illuminate\\Events\\Dispatcher($app);
$app->instance('events', $events);
$app->instance(Illuminate\\Contracts\\Events\\Dispatcher::class, $events);
$app->instance(Illuminate\\Contracts\\Debug\\ExceptionHandler::class, new Reports());
$provider = new JobQueue\\Client\\Laravel\\ServiceProvider($app);
$provider->register();
$app->singleton('queue', fn () => new Illuminate\\Queue\\QueueManager($app));
$bus = new Illuminate\\Bus\\Dispatcher($app, fn ($connection = null) => $app['queue']->connection($connection));
$app->instance(Illuminate\\Contracts\\Bus\\Dispatcher::class, $bus);
$queue = $app['queue']->connection();
$client = new Client($url);
$advance = fn (float $seconds) => $client->batch([['command' => 'clock', 'advance' => $seconds]]);
$work = function (int $maxTries = 1, int $backoff = 0, string $queues = 'orders') use ($app, $events): int {
    $worker = new Illuminate\\Queue\\Worker($app['queue'], $events, new Reports(), fn () => false);
    $options = new WorkerOptions(maxTries: $maxTries, backoff: $backoff, stopWhenEmpty: true, sleep: 0, timeout: 0);
    return $worker->daemon('jobqueue', $queues, $options);
};
$handle = fn (CloseOrder $job) => $tell(['closed', $job->order, $job->attempts()]);
"""


async def run(queue: Client, code: str) -> list[Any]:
    need(*(f"Illuminate/{part}/autoload.php" for part in ("Queue", "Events", "Bus")))
    return await told(APP + code, queue.url)


async def test_a_delayed_job_is_handled_when_it_is_due_and_then_gone(queue: Client) -> None:
    said = await run(
        queue,
        """
        $bus->dispatch((new CloseOrder(1001))->delay(1800));
        $bus->dispatch((new CloseOrder(1002))->delay(new DateInterval('PT1H'))->onQueue('others'));
        $advance(1799);
        $work(queues: 'orders,others');
        $tell([$queue->size(), $queue->delayedSize(), $queue->pendingSize(), $queue->creationTimeOfOldestPendingJob()]);
        $advance(1);
        $tell([$queue->size(), $queue->delayedSize(), $queue->pendingSize()]);
        $tell(abs($queue->creationTimeOfOldestPendingJob() - time()) < 60);
        $work(queues: 'orders,others');
        $tell([$queue->size(), $queue->size('others')]);
        """,
    )
    assert said == [[1, 1, 0, None], [1, 0, 1], True, ["closed", 1001, 1], [0, 1]]


async def test_a_job_that_fails_is_tried_again_after_laravels_back_off_and_then_failed(queue: Client) -> None:
    said = await run(
        queue,
        """
        $handle = fn () => throw new DomainException('no');
        $queue->push(new CloseOrder(1001));
        $work(maxTries: 2, backoff: 30);
        $tell(['size', $queue->size(), $queue->delayedSize()]);
        $advance(30);
        $work(maxTries: 2, backoff: 30);
        $tell(['size', $queue->size(), $queue->delayedSize()]);
        """,
    )
    assert said == [
        ["report", "no"],
        ["size", 1, 1],
        ["failed", 1001, "no"],
        ["report", "no"],
        ["size", 0, 0],
    ]


async def test_a_job_that_releases_itself_comes_back_after_its_delay_with_one_more_attempt(queue: Client) -> None:
    said = await run(
        queue,
        """
        $handle = function (CloseOrder $job) use ($tell): void {
            $tell(['attempt', $job->attempts()]);
            $job->attempts() === 1 && $job->release(60);
        };
        $queue->push(new CloseOrder(1001));
        $work(maxTries: 3);
        $advance(59);
        $work(maxTries: 3);
        $advance(1);
        $work(maxTries: 3);
        """,
    )
    assert said == [["attempt", 1], ["attempt", 2]]


async def test_what_was_due_earlier_is_due_now(queue: Client) -> None:
    said = await run(
        queue,
        """
        $handle = function (CloseOrder $job) use ($tell): void {
            $tell(['attempt', $job->attempts()]);
            $job->attempts() === 1 && $job->release(-5);
        };
        $queue->later(-5, new CloseOrder(1001));
        $work(maxTries: 3);
        """,
    )
    assert said == [["attempt", 1], ["attempt", 2]]


async def test_a_job_whose_worker_died_is_delivered_again_after_retry_after(queue: Client) -> None:
    said = await run(
        queue,
        """
        $queue->push(new CloseOrder(1001));
        $lost = $queue->pop();
        $work(maxTries: 3);
        $advance(61);
        $work(maxTries: 3);
        $lost->delete(); // the late end of the first worker does no harm
        """,
    )
    assert said == [["closed", 1001, 2]]


async def test_a_failed_job_that_is_pushed_again_as_it_was_is_a_new_one(queue: Client) -> None:
    said = await run(
        queue,
        """
        $queue->push(new CloseOrder(1001));
        $job = $queue->pop();
        $job->delete();
        $queue->pushRaw($job->getRawBody()); // as artisan queue:retry does
        $work();
        """,
    )
    assert said == [["closed", 1001, 1]]


async def test_a_web_request_is_answered_soon_though_the_service_is_away(queue: Client) -> None:
    said = await run(
        queue,
        """
        $config = ['url' => 'http://127.0.0.1:1', 'retry_after' => 60];
        $away = (new JobQueue\\Client\\Laravel\\Connector())->connect($config);
        $away->setContainer($app);
        $away->setConnectionName('away');
        try {
            $away->push(new CloseOrder(1));
        } catch (JobQueue\\Client\\Exception\\UnreachableException $error) {
            $tell(['unreachable']);
        }
        """,
    )
    assert said == [["unreachable"]]
