"""The PHP worker: its events, hooks, middleware, limits and log lines."""

from __future__ import annotations

import pytest

from tests.clients.php.program import output, told
from tests.kit.service import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVENTS = """
$client = new Client($url);
$worker = new Worker($url, on_event: function (string $event, array $fields) use ($tell): void {
    $class = isset($fields['error']) ? $fields['error']::class : null;
    str_starts_with($event, 'job.') && $tell([$event, $fields['id'], $fields['attempt'], $class]);
});
"""


async def test_each_event_has_the_attempt_and_the_error_and_a_death_is_one(queue: Client) -> None:
    code = (
        EVENTS
        + """
        $client->add('t', 1, id: 'fails', tries: 2, backoff: []);
        $worker->job('t', function (Job $job) use ($worker): void {
            $job->last_try && $worker->stop();
            $job->attempt === 1 ? throw new DomainException('no') : throw new Retry();
        });
        $worker->run();
        """
    )
    assert await told(code, queue.url) == [
        ["job.started", "fails", 1, None],
        ["job.failed", "fails", 1, "DomainException"],
        ["job.started", "fails", 2, None],
        ["job.died", "fails", 2, "JobQueue\\Client\\Retry"],
    ]
    assert (await queue.ask("get", id="fails"))["reason"] == "the tries ran out: 2 of 2"


async def test_a_lease_that_ends_before_its_handler_is_expired_and_not_lost(queue: Client) -> None:
    code = (
        EVENTS.replace("new Worker($url,", "new Worker($url, keep_alive_s: 0,")
        + """
        $client->add('t', 1, id: 'slow', ttr: 0.2);
        $worker->job('t', function (Job $job) use ($worker, $client): void {
            $client->batch([['command' => 'clock', 'advance' => 1]]);
            while ($job->lost() === null) {
                usleep(10_000);
            }
            $worker->stop();
            $job->check();
        });
        $worker->run();
        """
    )
    assert await told(code, queue.url) == [["job.started", "slow", 1, None], ["job.expired", "slow", 1, None]]


async def test_hooks_get_the_error_and_the_job_of_a_failure_and_of_a_death(queue: Client) -> None:
    code = """
        $client = new Client($url);
        $client->add('t', 1, id: 'dies', tries: 1);
        $client->add('t', 1, id: 'buried');
        $client->add('t', 1, id: 'retried');
        $worker = new Worker($url, max_jobs: 3,
            on_error: fn (Throwable $error, Job $job) => $tell(['error', $job->id, $error->getMessage()]),
            on_death: fn (Job $job, ?string $reason, Throwable $error)
                => $tell(['death', $job->id, $reason, $error::class]));
        $worker->job('t', fn (Job $job) => throw match ($job->id) {
            'dies' => new DomainException('no'),
            'buried' => new Bury('poison'),
            'retried' => new Retry(5),
        });
        $worker->run();
    """
    assert await told(code, queue.url) == [
        ["error", "dies", "no"],
        ["death", "dies", "DomainException: no", "DomainException"],
        ["death", "buried", "poison", "JobQueue\\Client\\Bury"],
    ]


async def test_middleware_wraps_every_handler_the_first_outermost_and_its_error_is_the_handlers(queue: Client) -> None:
    code = """
        $client = new Client($url);
        $client->add('t', 1, id: 'one');
        $client->add('u', 1, id: 'two', delay: 0);
        $client->add('v', 1, id: 'three');
        $worker = new Worker($url, max_jobs: 3);
        foreach (['outer', 'inner'] as $name) {
            $worker->use(function (Job $job, callable $next) use ($tell, $name): void {
                $tell(["$name before", $job->id]);
                $next($job);
                $tell(["$name after", $job->id]);
            });
        }
        $worker->use(fn (Job $job, callable $next) => $job->id === 'three' ? throw new DomainException('no') : $next());
        foreach (['t', 'u', 'v'] as $topic) {
            $worker->job($topic, fn (Job $job) => $tell(['handler', $job->id]));
        }
        $worker->run();
    """
    said = await told(code, queue.url)
    for job in ("one", "two"):
        assert [word for word, told_id in said if told_id == job] == [
            "outer before",
            "inner before",
            "handler",
            "inner after",
            "outer after",
        ]
    assert [word for word, told_id in said if told_id == "three"] == ["outer before", "inner before"]
    assert (await queue.ask("get", id="three"))["reason"] == "DomainException: no"


@pytest.mark.parametrize(
    ("option", "handler", "reason", "left"),
    [
        ("max_jobs: 2", "null", "max_jobs", 1),
        ("max_time_s: 1.0", "usleep(1_100_000)", "max_time", 2),
        ("memory_mb: 90", "$GLOBALS['kept'] = str_repeat('x', 100 << 20)", "memory", 2),
        ("name: 'n'", "$worker->stop()", "stop", 2),
        ("name: 'n'", "posix_kill(getmypid(), SIGTERM)", "signal", 2),
    ],
)
async def test_a_limit_stops_the_worker_in_order_and_says_which(
    queue: Client, option: str, handler: str, reason: str, left: int
) -> None:
    code = f"""
        ini_set('memory_limit', '-1');
        $client = new Client($url);
        foreach ([1, 2, 3] as $n) {{
            $client->add('t', $n);
        }}
        $worker = new Worker($url, {option}, on_event: function (string $event, array $fields) use ($tell): void {{
            in_array($event, ['worker.stopping', 'worker.stopped'], true) && $tell([$event, $fields]);
        }});
        $worker->job('t', function (Job $job) use ($worker): void {{
            {handler};
        }});
        $tell($worker->run());
    """
    (_, stopping), (_, stopped), clean = await told(code, queue.url)
    assert (stopping["reason"], clean) == (reason, True)
    sums = {name: stopped[name] for name in ("finished", "failed", "retried", "buried", "died", "lost")}
    assert sums == {"finished": 3 - left, "failed": 0, "retried": 0, "buried": 0, "died": 0, "lost": 0}
    assert (await queue.ask("stats", topic="t"))["counts"]["ready"] == left


async def test_an_idle_worker_stops_when_its_time_is_over(queue: Client) -> None:
    code = """
        $worker = new Worker($url, max_time_s: 0.2);
        $worker->job('t', fn (Job $job) => null);
        $begun = microtime(true);
        $tell($worker->run());
        $tell(microtime(true) - $begun < 15); // its poll would wait for 20 s
    """
    assert await told(code, queue.url) == [True, True]


@pytest.mark.parametrize("option", ["max_jobs: 0", "max_time_s: 0", "memory_mb: -1"])
async def test_a_limit_that_cannot_be_is_refused_by_its_name(queue: Client, option: str) -> None:
    code = f"""
        try {{
            new Worker($url, {option});
        }} catch (InvalidArgumentException $error) {{
            $tell($error->getMessage());
        }}
    """
    (message,) = await told(code, queue.url)
    assert message.startswith(option.partition(":")[0] + " must be ")


async def test_a_worker_takes_the_options_of_a_client_in_place_of_one(queue: Client) -> None:
    code = """
        (new Client($url))->add('options', ['a' => new stdClass()], id: 'options');
        foreach ([['client' => $url], ['url' => $url], ['urls' => [$url]]] as $where) {
            $worker = new Worker(...$where, max_jobs: 1, timeout_s: 5.0, headers: ['X-Shop' => 'a'], objects: true);
            $worker->job('options', function (Job $job) use ($tell): void {
                $tell($job->body instanceof stdClass);
                throw new Retry(after: 0, attempt: false);
            });
            $worker->run();
        }
        $given = new Client($url);
        $refused = [[$url, 'retry_for_s' => 1], [$given, 'token_file' => 'x'], ['timeout_s' => 1.0], [$url, 'ca' => 1]];
        foreach ($refused as $options) {
            try {
                new Worker(...$options);
            } catch (Throwable $error) {
                $tell($error->getMessage());
            }
        }
    """
    assert await told(code, queue.url) == [
        *[True] * 3,
        "retry_for_s is not an option of a worker: it never gives up",
        "token_file is an option of the client: give it to that, or give the worker a URL",
        "give either url or urls, the addresses of one service",
        "Unknown named parameter $ca",
    ]


async def test_the_log_line_of_a_failure_has_file_and_line_and_the_cause(queue: Client) -> None:
    code = """
        (new Client($url))->add('t', ['secret' => 'hidden'], tries: 1);
        $worker = new Worker($url, max_jobs: 1);
        $worker->job('t', function (Job $job): void {
            try {
                throw new DomainException('gone');
            } catch (DomainException $cause) {
                $job->body->nonsense(); /* the line */
            } finally {
                throw new RuntimeException('no order', 0, $cause);
            }
        });
        $worker->run();
    """
    lines = (await output(code, queue.url)).splitlines()
    (failed,) = [line for line in lines if " job.failed " in line]
    assert 'reason="RuntimeException: no order"' in failed and "program.php:" in failed.partition(" at=")[2]
    assert 'caused_by="' in failed and failed.count("program.php:") == 2
    assert any(" job.died " in line for line in lines)
    assert "hidden" not in "".join(lines)


async def test_the_lateness_is_that_of_this_delivery(queue: Client) -> None:
    code = """
        $log = new JobQueue\\Client\\Worker\\Log(null);
        $event = fn (string $name, array $fields) => $tell(round($fields['late_s']));
        $hooks = new JobQueue\\Client\\Worker\\Hooks($log, $event(...), null, null);
        $report = new JobQueue\\Client\\Worker\\Report('w', 0, $hooks, $log);
        $answer = ['id' => '1', 'topic' => 't', 'value' => 1, 'lease' => 1, 'attempt' => 2, 'tries' => 16, 'ttr' => 60,
            'headers' => null, 'due' => microtime(true) - 1000.0];
        $report->started(Job::fromAnswer($answer));
        $report->started(Job::fromAnswer($answer + ['ready' => microtime(true) - 3.0]));
    """
    assert (await output(code, queue.url)).split() == ["1000", "3"]
