"""The spans of the PHP client and the trace context of its jobs, with the stand-in opentelemetry.php for the API."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.php.program import PATIENCE_S, need, running, text, told, told_in
from tests.conformance.proxy import Proxy
from tests.kit.service import Client
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

Span = dict[str, Any]

CLIENT, PRODUCER, CONSUMER = 1, 3, 4
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{PARENT}-01"
BEGIN = f"""
    require '{Path(__file__).with_name("opentelemetry.php")}';
    use JobQueue\\Client\\Exception\\JobQueueException;
    use OpenTelemetry\\API\\Trace\\{{Recorder, Span, SpanContext}};
    $client = new Client($url);
    $within = function (Closure $code, string ...$context): void {{
        $scope = Span::wrap(new SpanContext('{TRACE}', '{PARENT}', ...$context))->activate();
        $code();
        $scope->detach();
    }};
    $refused = function (Closure $code): void {{
        try {{
            $code();
        }} catch (JobQueueException $error) {{
            $GLOBALS['tell']([$error::class, $error->getMessage()]);
        }}
    }};
"""
END = """
    $tell(['spans' => Recorder::$spans, 'active' => Span::getCurrent()->getContext()->isValid()]);
"""


async def traced(code: str, url: str) -> tuple[list[Any], list[Span]]:
    """What the program passed to `$tell`, and its spans, in the order in which they ended. No span is active then."""
    return parted(await told(BEGIN + code + END, url))


def parted(said: list[Any]) -> tuple[list[Any], list[Span]]:
    *before, end = said
    assert not end["active"]
    for span in end["spans"]:
        assert span["scope"] == "jobqueue/client" and 0 <= span["end"] - span["start"] < PATIENCE_S * 1e9
    return before, end["spans"]


def attributes(operation: str, type_: str, topic: str | None = None, job: str | None = None) -> dict[str, Any]:
    names = ("destination.name", topic), ("message.id", job)
    given = {f"messaging.{name}": value for name, value in names if value is not None}
    common = {"messaging.system": "jobqueue", "messaging.operation.name": operation, "messaging.operation.type": type_}
    return common | given


def traceparent(span: Span) -> str:
    return f"00-{span['trace']}-{span['id']}-01"


def named(spans: list[Span], name: str) -> list[Span]:
    return [span for span in spans if span["name"] == name]


async def test_an_add_has_a_span_and_its_context_is_in_the_headers_of_the_job(queue: Client) -> None:
    code = """
        $client->add('t', 1, id: 'root', headers: ['shop' => 'a']);
        $within(fn () => $tell([$client->add('t', 1)['id']]));
    """
    [[child]], spans = await traced(code, queue.url)
    assert [(span["name"], span["kind"], span["status"]) for span in spans] == [("send t", PRODUCER, None)] * 2
    assert [span["attributes"] for span in spans] == [attributes("add", "send", "t", job) for job in ("root", child)]
    assert (await queue.ask("get", id="root"))["headers"] == {"shop": "a", "traceparent": traceparent(spans[0])}
    assert (await queue.ask("get", id=child))["headers"] == {"traceparent": traceparent(spans[1])}
    assert spans[0]["parent"] == "" and (spans[1]["trace"], spans[1]["parent"]) == (TRACE, PARENT)


async def test_a_retry_sends_the_same_headers_within_the_same_span(queue: Client) -> None:
    async with Proxy(queue.url) as proxy:
        proxy.faults = ["cut", "page", "pass", "cut"]
        code = """
            $client->add('t', 1, id: 'a');
            $client->batch([['command' => 'add', 'topic' => 't', 'body' => 1, 'id' => 'b']]);
        """
        _, spans = await traced(code, proxy.url)
    sent = [commands[0]["headers"]["traceparent"] for _, commands, _ in proxy.requests]
    assert sent == [traceparent(spans[0])] * 3 + [traceparent(spans[1])] * 2
    assert [span["status"] for span in spans] == [None, None]


async def test_the_headers_of_the_caller_go_first(queue: Client) -> None:
    code = """
        $many = fn (int $count) => array_fill_keys(array_map(fn (int $n): string => "h$n", range(1, $count)), 'x');
        $own = (object) ['shop' => 'a'];
        $within(function () use ($client, $many, $own) {
            $client->add('t', 1, id: 'mine', headers: ['TraceParent' => 'mine']);
            $client->add('t', 1, id: 'state', headers: ['TRACESTATE' => 'mine']);
            $client->add('t', 1, id: 'full', headers: $many(16));
            $client->add('t', 1, id: 'fifteen', headers: $many(15));
            $client->add('t', 1, id: 'fourteen', headers: $many(14));
            $client->add('t', 1, id: 'own', headers: $own);
        }, '00', 'k=v');
        $within(fn () => $client->add('t', 1, id: 'long', headers: []), '01', 'k=' . str_repeat('v', 126));
        $within(fn () => $client->add('t', 1, id: 'longer'), '01', 'k=' . str_repeat('v', 127));
        $tell([$own]);
    """
    [[own]], spans = await traced(code, queue.url)
    ids = [span["attributes"]["messaging.message.id"] for span in spans]
    headers = {job: (await queue.ask("get", id=job))["headers"] for job in ids}
    assert headers.pop("mine") == {"TraceParent": "mine"}
    assert headers.pop("state") == {"TRACESTATE": "mine"}
    assert set(headers.pop("full")) == {f"h{n}" for n in range(1, 17)}
    assert set(headers.pop("fifteen")) == {f"h{n}" for n in range(1, 16)} | {"traceparent"}
    assert headers.pop("fourteen").items() >= {"tracestate": "k=v", "h14": "x"}.items()
    assert headers["own"]["traceparent"].startswith(f"00-{TRACE}-") and headers["own"]["traceparent"].endswith("-00")
    assert set(headers.pop("own")) == {"shop", "traceparent", "tracestate"} and own == {"shop": "a"}
    assert headers.pop("long")["tracestate"] == "k=" + 126 * "v"
    assert set(headers.pop("longer")) == {"traceparent"} and not headers


async def test_headers_of_a_wrong_type_are_refused_as_ever_and_without_a_context_there_are_none(queue: Client) -> None:
    code = """
        $valid = Span::wrap(new SpanContext('1', '2'));
        foreach (['x', 7, ['x'], [], new ArrayObject()] as $headers) {
            $add = ['command' => 'add', 'headers' => $headers];
            $tell([JobQueue\\Client\\Tracing::injected($add, $valid) === $add]);
        }
        $add = ['command' => 'add', 'topic' => 't'];
        $tell([JobQueue\\Client\\Tracing::injected($add, Span::getCurrent()) === $add]);
        $within(fn () => $refused(fn () => $client->add('t', 1, headers: 'x')));
        $within(fn () => $refused(fn () => throw $client->batch([$add + ['body' => 1, 'headers' => ['x']]])[0]));
        $within(fn () => $client->batch([$add + ['body' => 1, 'id' => 'null', 'headers' => null]]));
    """
    [*same, text_, list_], _ = await traced(code, queue.url)
    assert same == [[True]] * 6
    assert "headers must be an object" in text_[1] and "headers must be an object" in list_[1]
    assert set((await queue.ask("get", id="null"))["headers"]) == {"traceparent"}


async def test_a_batch_has_one_span_for_its_adds(queue: Client) -> None:
    code = f"""
        $add = ['command' => 'add', 'body' => 1];
        $stats = ['command' => 'stats'];
        $client->batch([$add + ['topic' => 't', 'id' => 'a'], $stats, $add + ['topic' => 't', 'id' => 'b']]);
        $client->batch([
            $add + ['topic' => 't', 'id' => 'c', 'headers' => ['traceparent' => '{GIVEN}']],
            $add + ['topic' => 'u', 'id' => 'd'],
            ['command' => 'schedule', 'name' => 's', 'topic' => 't', 'body' => 1, 'every' => 60],
            ['command' => 'update', 'id' => 'c', 'priority' => 1],
        ]);
        $client->schedule('r', 't', 1, every: 60);
        $client->batch([$stats]);
    """
    _, spans = await traced(code, queue.url)
    assert [(span["name"], span["kind"]) for span in spans] == [("send t", PRODUCER), ("send", PRODUCER)]
    count = {"messaging.batch.message_count": 2}
    assert spans[0]["attributes"] == attributes("add", "send", "t") | count
    assert spans[1]["attributes"] == attributes("add", "send") | count
    headers = [(await queue.ask("get", id=job))["headers"]["traceparent"] for job in "abcd"]
    assert headers == [traceparent(spans[0])] * 2 + [GIVEN, traceparent(spans[1])]
    assert [each.get("headers") for each in (await queue.ask("schedules"))["schedules"]] == [None, None]


async def test_a_refused_or_unsent_add_is_an_error_of_its_span_and_of_the_caller(queue: Client) -> None:
    code = """
        $refused(fn () => $client->add('t', 1, priority: 10));
        $refused(fn () => (new Client('http://127.0.0.1:1', retry_for_s: 0))->add('t', 1));
        $add = ['command' => 'add', 'topic' => 't', 'body' => 1];
        $client->batch([
            ['command' => 'get', 'id' => 'nobody'], $add,
            $add + ['id' => 'live', 'if_exists' => 'never'], $add + ['priority' => 10, 'topic' => 't'],
        ]);
        $client->batch([['command' => 'get', 'id' => 'nobody'], $add]);
        try {
            $client->add('t', NAN);
        } catch (JsonException $error) {
            $tell([$error::class, $error->getMessage()]);
        }
    """
    (refused, unsent, invalid), spans = await traced(code, queue.url)
    assert [span["status"] for span in spans[:2]] == [["Error", refused[1]], ["Error", unsent[1]]]
    assert spans[2]["status"][1].startswith("add live: if_exists must be ") and spans[3]["status"] is None
    assert spans[4]["status"] == ["Error", invalid[1]]
    types = [span["attributes"].get("error.type") for span in spans]
    assert types == ["BAD_FIELD", unsent[0], "BAD_FIELD", None, "JsonException"]
    assert unsent[0].endswith("\\UnreachableException")


async def test_a_pop_that_finds_jobs_has_a_span_with_links_to_their_adds(queue: Client) -> None:
    code = f"""
        foreach (['a', 'b', 'c'] as $id) {{
            $client->add('one', 1, id: $id);
        }}
        $client->add('one', 1, id: 'd', headers: ['traceparent' => 'nonsense']);
        $client->add('two', 1, id: 'e', headers: ['TraceParent' => '{GIVEN}']);
        $within(fn () => $client->pop(['none', 'one']));
        $client->popMany('one', 2);
        (new Client($url, objects: true))->popMany(['one', 'two'], 5);
        $client->pop('one');
        $client->popMany('one', 5);
    """
    _, spans = await traced(code, queue.url)
    adds, pops = spans[:5], spans[5:]
    assert [(span["name"], span["kind"]) for span in pops] == [("receive one", CLIENT)] * 2 + [("receive", CLIENT)]
    assert [span["links"] for span in pops] == [[adds[0]["id"]], [adds[1]["id"], adds[2]["id"]], [PARENT]]
    count = {"messaging.batch.message_count": 2}
    assert [span["attributes"] for span in pops] == [
        attributes("pop", "receive", "one", "a"),
        attributes("pop", "receive", "one") | count,
        attributes("pop", "receive") | count,
    ]
    assert [span["parent"] for span in pops] == [PARENT, "", ""]


async def test_a_pop_has_at_most_128_links(queue: Client) -> None:
    code = """
        $header = fn (int $n): array => ['traceparent' => sprintf('00-%032x-%016x-01', $n, $n)];
        $add = fn (int $n): array => ['command' => 'add', 'topic' => 't', 'body' => 1, 'headers' => $header($n)];
        $client->batch(array_map($add, range(1, 130)));
        $client->popMany('t', 130);
    """
    _, [_, pop] = await traced(code, queue.url)
    assert len(set(pop["links"])) == 128
    assert pop["attributes"]["messaging.batch.message_count"] == 130


async def test_a_pop_begins_when_its_request_is_sent(queue: Client) -> None:
    pops = {
        "client": "$client->pop('t', wait: 20);",
        "worker": """
            $worker = new Worker($url, poll_s: 20, max_jobs: 1);
            $worker->job('t', fn () => null);
            $worker->run();
        """,
    }
    for who, code in pops.items():
        async with Proxy(queue.url) as proxy, running(BEGIN + code + END, proxy.url) as process:
            proxy.faults = ["hold"]
            await queue.ask("add", topic="t", body=1)
            await until(lambda: bool(proxy.requests))
            await asyncio.sleep(0.3)
            proxy.let_go.set()
            _, spans = parted(told_in(await text(process)))
        [pop] = named(spans, "receive t")
        assert pop["end"] - pop["start"] >= 0.3e9, who


async def test_the_ends_that_a_client_sends_have_spans_and_other_commands_none(queue: Client) -> None:
    code = """
        foreach (['a', 'b', 'c', 'd'] as $id) {
            $client->add('t', 1, id: $id);
        }
        $jobs = array_map(fn () => $client->pop('t'), range(1, 3));
        Recorder::$spans = [];
        $within(fn () => $client->touch($jobs[0]));
        $within(fn () => $client->finish($jobs[0]));
        $client->release($jobs[1], delay: 5);
        $client->bury('c', $jobs[2]->lease, reason: 'no');
        $refused(fn () => $client->finish('nobody'));
        $client->kick('c');
        $client->run('b');
        $client->update('b', priority: 1);
        $client->peek('t');
        $client->get('d');
        $client->delete('d');
    """
    [[_, message]], spans = await traced(code, queue.url)
    assert [(span["name"], span["kind"]) for span in spans] == [
        *[("settle t", CLIENT)] * 2,
        *[("settle", CLIENT)] * 2,
    ]
    assert [span["attributes"] for span in spans] == [
        attributes("finish", "settle", "t", "a"),
        attributes("release", "settle", "t", "b"),
        attributes("bury", "settle", None, "c"),
        attributes("finish", "settle", None, "nobody") | {"error.type": "NOT_FOUND"},
    ]
    assert [span["parent"] for span in spans] == [PARENT, "", "", ""]
    assert [span["status"] for span in spans] == [None, None, None, ["Error", message]]


async def test_a_handler_runs_within_a_span_that_continues_the_trace_of_its_job(queue: Client) -> None:
    code = """
        $within(fn () => $client->add('t', 1, id: 'a'));
        $current = fn (): string => Span::getCurrent()->getContext()->span;
        $worker = new Worker($url, max_jobs: 1);
        $worker->use(function (Job $job, callable $next) use ($current, $tell): void {
            $tell([$current()]);
            $next($job);
            $tell([$current()]);
        });
        $worker->job('t', function (Job $job) use ($client, $current, $tell): void {
            $tell([$current()]);
            $client->add('next', 1, id: 'b');
        });
        $worker->run();
    """
    current, spans = await traced(code, queue.url)
    assert [(span["name"], span["kind"]) for span in spans] == [
        ("send t", PRODUCER),
        ("receive t", CLIENT),
        ("send next", PRODUCER),
        ("settle t", CLIENT),
        ("process t", CONSUMER),
    ]
    send, receive, nested, settle, process = spans
    assert {span["trace"] for span in (send, nested, settle, process)} == {TRACE} != {receive["trace"]}
    assert process["parent"] == send["id"] and process["links"] == [send["id"]] == receive["links"]
    assert current == [[process["id"]]] * 3
    assert nested["parent"] == process["id"] == settle["parent"]
    assert (await queue.ask("get", id="b"))["headers"] == {"traceparent": traceparent(nested)}
    assert process["attributes"] == attributes("process", "process", "t", "a") | {"messaging.jobqueue.attempt": 1}
    assert settle["attributes"] == attributes("finish", "settle", "t", "a")
    assert process["start"] <= settle["start"] and settle["end"] <= process["end"]
    assert process["status"] is None and process["events"] == []


async def test_a_job_without_a_context_is_handled_within_the_current_one(queue: Client) -> None:
    await queue.ask("add", topic="t", body=1)
    code = """
        $worker = new Worker($url, max_jobs: 1);
        $worker->job('t', fn () => null);
        $within($worker->run(...));
    """
    _, spans = await traced(code, queue.url)
    [process] = named(spans, "process t")
    assert (process["trace"], process["parent"], process["links"]) == (TRACE, PARENT, [])


HANDLES = """
    $kit = new JobQueue\\Client\\Testing\\Queue($url);
    foreach (['fail', 'die', 'ask', 'retry', 'bury', 'delete', 'lose'] as $n => $id) {
        $client->add('t', 1, id: $id, priority: 9 - $n, tries: $id === 'die' ? 1 : 5);
    }
    $client->add('t', 1, id: 'popped', priority: 0, ttr: 0);
    Recorder::$spans = [];
    $worker = new Worker($url, max_jobs: 8);
    $worker->job('t', fn (Job $job) => match ($job->id) {
        'fail', 'die' => throw new DomainException('no'),
        'ask' => $client->get('nobody'),
        'retry' => throw new Retry(60),
        'bury' => throw new Bury('poison'),
        'delete' => $client->delete($job->id),
        'lose' => throw new JobQueue\\Client\\Lost('stale'),
        'popped' => null, // and it is finished
    });
"""


@pytest.mark.parametrize("run", ["$worker->run();", "$kit->drain($worker, raise_errors: false);"])
async def test_the_span_of_a_handler_says_how_its_job_ended(queue: Client, run: str) -> None:
    _, spans = await traced(HANDLES + run, queue.url)
    processes, settles = (
        {span["attributes"]["messaging.message.id"]: span for span in named(spans, name)}
        for name in ("process t", "settle t")
    )
    assert len(spans) == 8 + len(processes) + len(settles)
    failed = ["exception", {"type": "DomainException"}]
    assert {job: span["events"] for job, span in processes.items()} == {
        "fail": [failed],
        "die": [failed, ["jobqueue.dead_letter", {"reason": "DomainException: no"}]],
        "ask": [["exception", {"type": "JobQueue\\Client\\Exception\\NotFoundException"}]],
        "retry": [],
        "bury": [["jobqueue.dead_letter", {"reason": "poison"}]],
        "delete": [["jobqueue.lost", {"reason": "deleted"}]],
        "lose": [["jobqueue.lost", {"reason": "stale"}]],
        "popped": [],
    }
    errors = {job: span["attributes"].get("error.type") for job, span in processes.items() if span["status"]}
    assert errors == {
        "fail": "DomainException",
        "die": "DomainException",
        "ask": "JobQueue\\Client\\Exception\\NotFoundException",
    }
    assert processes["fail"]["status"] == ["Error", "no"]
    sent = {job: span["attributes"]["messaging.operation.name"] for job, span in settles.items()}
    releases = dict.fromkeys(("fail", "die", "ask", "retry"), "release")
    assert sent == {**releases, "bury": "bury", "delete": "finish"}
    assert {job: span["attributes"]["error.type"] for job, span in settles.items() if span["status"]} == {
        "delete": "NOT_FOUND"
    }
    for job, span in settles.items():
        assert span["parent"] == processes[job]["id"] and span["end"] <= processes[job]["end"]


async def test_a_delivery_after_the_first_is_marked_whether_or_not_that_one_counted(queue: Client) -> None:
    code = """
        $client->add('t', 1);
        $worker = new Worker($url, max_jobs: 3);
        $next = 0;
        $worker->job('t', function () use (&$next): void {
            $next++ < 2 && throw new Retry(0, attempt: $next === 2);
        });
        $worker->run();
    """
    _, spans = await traced(code, queue.url)
    attempt = "messaging.jobqueue.attempt"
    assert [(span["attributes"][attempt], span["events"]) for span in named(spans, "process t")] == [
        (1, []),
        (1, [["jobqueue.redelivery", {attempt: 1}]]),
        (2, [["jobqueue.redelivery", {attempt: 2}]]),
    ]


async def test_a_handler_that_a_signal_interrupts_leaves_no_active_span(queue: Client) -> None:
    code = """
        $client->add('t', 1, tries: 1);
        $worker = new Worker($url, grace_s: 0.2);
        $worker->job('t', function (): void {
            posix_kill(getmypid(), SIGTERM);
            for (;;) {
                usleep(10_000);
            }
        });
        $worker->run();
    """
    _, spans = await traced(code, queue.url)
    [process] = named(spans, "process t")
    reason = {"reason": "stopping"}
    assert process["events"] == [["jobqueue.lost", reason], ["jobqueue.dead_letter", reason]]
    assert process["status"] is None and not named(spans, "settle t")


@pytest.mark.parametrize(
    ("faults", "error", "events"),
    [
        (["cut"], None, []),  # executed; when it is repeated, the job is not reserved any more
        (
            ["drop"] * 1000,
            "JobQueue\\Client\\Exception\\UnreachableException",
            [["jobqueue.lost", {"reason": "stopping"}]],
        ),
        ([{"status": 400, "answer": {"success": False, "code": "BAD_JSON", "error": "no"}}], "BAD_JSON", []),
    ],
    ids=["answer lost", "never answered", "request refused"],
)
async def test_the_spans_of_a_job_end_even_if_its_end_cannot_be_sent(
    queue: Client, faults: list[Any], error: str | None, events: list[Any]
) -> None:
    code = """
        (new Client(getenv('DIRECT')))->add('t', 1);
        $worker = new Worker($url, grace_s: 0.5);
        $worker->job('t', function () use ($worker): void {
            $worker->stop();
            throw new Retry(60);
        });
        $refused($worker->run(...));
    """
    async with Proxy(queue.url) as proxy:
        proxy.faults = ["pass", *faults]
        _, spans = parted(await told(BEGIN + code + END, proxy.url, DIRECT=queue.url))
    [settle], [process] = named(spans, "settle t"), named(spans, "process t")
    assert settle["attributes"].get("error.type") == error and (settle["status"] is None) == (error is None)
    assert process["events"] == events and process["status"] is None


async def test_jobs_of_laravel_and_symfony_carry_the_context_too(queue: Client) -> None:
    need("Illuminate/Queue/autoload.php", "Symfony/Component/Messenger/autoload.php")
    code = """
        set_error_handler(fn (int $level) => ($level & (E_DEPRECATED | E_USER_DEPRECATED)) !== 0); // both on PHP 8.2
        require 'Illuminate/Queue/autoload.php';
        require 'Symfony/Component/Messenger/autoload.php';
        $laravel = (new JobQueue\\Client\\Laravel\\Connector())->connect(['url' => $url, 'queue' => 'laravel']);
        $dsn = str_replace('http://', 'jobqueue://', $url) . '/symfony';
        $serializer = new Symfony\\Component\\Messenger\\Transport\\Serialization\\PhpSerializer();
        $symfony = (new JobQueue\\Client\\Symfony\\TransportFactory())->createTransport($dsn, [], $serializer);
        $within(fn () => $laravel->pushRaw('{}'));
        $within(fn () => $symfony->send(new Symfony\\Component\\Messenger\\Envelope(new stdClass())));
    """
    _, spans = await traced(code, queue.url)
    assert [span["name"] for span in spans] == ["send laravel", "send symfony"]
    for span in spans:
        job = await queue.ask("get", id=span["attributes"]["messaging.message.id"])
        assert span["trace"] == TRACE and job["headers"] == {"traceparent": traceparent(span)}


async def test_an_add_to_the_outbox_has_the_current_context_in_its_headers_and_no_span(queue: Client) -> None:
    code = """
        $db = new PDO('sqlite::memory:');
        $db->exec('CREATE TABLE jobqueue_outbox (id, action, topic, body, due, options)');
        $outbox = new JobQueue\\Client\\Outbox();
        $outbox->add($db, 't', 1);
        $within(function () use ($db, $outbox): void {
            $outbox->add($db, 't', 1, headers: ['shop' => 'a'], priority: 9);
            $outbox->add($db, 't', 1, headers: ['TraceParent' => 'mine']);
            $outbox->add($db, 't', 1, headers: 'x');
            $outbox->update($db, 'a', 5);
            $outbox->delete($db, 'a');
        });
        $tell($db->query('SELECT options FROM jobqueue_outbox')->fetchAll(PDO::FETCH_COLUMN));
    """
    [rows], spans = await traced(code, queue.url)
    assert [json.loads(row) if row else None for row in rows] == [
        None,
        {"priority": 9, "headers": {"shop": "a", "traceparent": GIVEN}},
        {"headers": {"TraceParent": "mine"}},
        {"headers": "x"},
        None,
        None,
    ]
    assert spans == []


async def test_without_the_api_nothing_is_traced(queue: Client) -> None:
    code = """
        spl_autoload_register(fn (string $class) => str_starts_with($class, 'OpenTelemetry') && $tell([$class]));
        $client = new Client($url);
        $client->add('t', 1, id: 'a');
        $client->batch([['command' => 'add', 'topic' => 't', 'body' => 1, 'id' => 'b']]);
        $tell([$client->get('a')['headers'], $client->get('b')['headers']]);
        $client->finish($client->pop('t'));
        $worker = new Worker($client, max_jobs: 1);
        $worker->job('t', fn () => $tell(['handled']));
        $worker->run();
        $tell(array_map(fn (string $class) => class_exists("JobQueue\\\\Client\\\\$class", false), [
            'CallSpans', 'Worker\\DeliverySpan',
        ]));
    """
    asked = ["OpenTelemetry\\API\\Globals"]
    assert await told(code, queue.url) == [asked, [None, None], asked, ["handled"], [False, False]]
