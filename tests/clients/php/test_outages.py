"""Outages that a PHP worker lives through: of the service, of one of its instances, and of the handlers' database."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.clients.php.program import PATIENCE_S, running, text, told
from tests.kit.ports import free_port
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORKS = """
$worker = new Worker($url, heartbeat_s: 0.2, on_event: fn (string $event, array $fields) => $tell([$event, $fields]));
$worker->job('t', fn (Job $job) => $worker->stop());
$worker->run();
"""


async def event(process: asyncio.subprocess.Process, name: str, *, has: str = "") -> dict[str, Any]:
    """The fields of the next event of that name, with that field."""
    assert process.stdout
    async with asyncio.timeout(PATIENCE_S):
        while line := await process.stdout.readline():
            if line.startswith(b"["):
                told, fields = json.loads(line)
                if told == name and (not has or has in fields):
                    return dict(fields)
    raise AssertionError(f"no {name}")


async def test_an_idle_worker_says_at_once_that_the_service_is_back_and_how_long_it_was_away() -> None:
    async with ServiceProcess("--test", workers=None) as service, running(WORKS, service.url) as process:
        await event(process, "worker.started")
        begun = asyncio.get_running_loop().time()
        await service.stop()
        assert (await event(process, "service.lost"))["reason"].startswith("pop t: ")
        assert (await event(process, "worker.heartbeat", has="service_lost_s"))["service_lost_s"] > 0
        await service.start()
        # A poll waits for 20 s; the outage is over when the service answers again.
        seconds = (await event(process, "service.back"))["seconds"]
        assert 0 < seconds < asyncio.get_running_loop().time() - begun < 15
        assert "service_lost_s" not in await event(process, "worker.heartbeat")
        async with Client(service.url) as client:
            await client.ask("add", topic="t", body=1)
        await event(process, "worker.stopped")


async def test_a_worker_with_two_addresses_loses_no_time_when_one_of_them_is_away(queue: Client) -> None:
    code = """
        (new Client($url))->add('t', 1);
        $client = new Client(urls: ['http://127.0.0.1:1', $url]);
        $worker = new Worker($client, on_event: fn (string $event) => $tell([$event]));
        $worker->job('t', fn (Job $job) => $worker->stop());
        $worker->run();
    """
    events = [name for (name,) in await told(code, queue.url)]
    assert "job.finished" in events and "service.lost" not in events


async def test_an_error_without_an_answer_names_the_command_its_job_and_the_address(queue: Client) -> None:
    code = """
        foreach (['http://127.0.0.1:1', 'http://nowhere.invalid'] as $away) {
            try {
                (new Client($away, retry_for_s: 0))->delete('ord-7');
            } catch (JobQueue\\Client\\Exception\\UnreachableException $error) {
                $tell([str_starts_with($error->getMessage(), "delete ord-7: $away: "), $error->maybe_done]);
            }
        }
    """
    assert await told(code, queue.url) == [[True, False], [True, False]]


async def test_a_worker_whose_limit_is_below_what_php_takes_still_does_a_job_each_time(queue: Client) -> None:
    code = """
        (new Client($url))->add('t', 1);
        $worker = new Worker($url, memory_mb: 1, on_event: fn (string $event) => $tell([$event]));
        $worker->job('t', fn (Job $job) => null);
        $worker->run();
    """
    events = [name for (name,) in await told(code, queue.url)]
    assert events.index("job.finished") < events.index("worker.stopped")


async def test_a_lease_is_kept_through_the_other_address_when_one_accepts_and_never_answers(queue: Client) -> None:
    code = """
        $server = stream_socket_server('tcp://127.0.0.1:0');
        $hangs = 'http://' . stream_socket_get_name($server, false);
        for ($seed = 0, $order = ['']; $order[0] !== $hangs; $seed++) {
            mt_srand($seed);
            $order = [$hangs, $url];
            shuffle($order);
        }
        mt_srand($seed - 1); // so that the client prefers the address that hangs
        $client = new Client(urls: [$hangs, $url], timeout_s: 1);
        $worker = new Worker($client, poll_s: 0.1, max_jobs: 1);
        $worker->job('t', function (Job $job) use ($tell): void {
            $tell(['lost', $job->lost()]);
            for ($end = microtime(true) + 7.0; microtime(true) < $end; usleep(10_000)) {
                $job->check();
            }
            $tell(['kept']);
        });
        (new Client($url))->add('t', 1, id: '1', ttr: 5);
        $worker->run();
    """
    assert await told(code, queue.url) == [["lost", None], ["kept"]]


CLOSES_ORDERS = """
$client = new Client($url);
for ($n = 0; $n < 20; $n++) {
    $client->add('order-close', ['order' => $n], id: "order-close:$n");
}
$worker = new Worker($client, on_event: fn (string $event) => $event === 'job.finished' && $tell([$event]));
$worker->job('order-close', function (Job $job): void {
    $database = @stream_socket_client('tcp://127.0.0.1:' . getenv('DATABASE'), $number, $message, 5);
    if ($database === false) {
        throw new RuntimeException("the database is away: $message");
    }
});
$worker->run();
"""


async def test_a_worker_whose_database_is_away_for_ten_minutes_loses_no_job(queue: Client) -> None:
    port = free_port()

    async def counts() -> Any:
        return (await queue.ask("stats", topic="order-close")).get("counts")

    async def all_tried() -> bool:
        now = await counts()
        return bool(now and now["ready"] == now["reserved"] == 0 and now["delayed"] + now["dead"] == 20)

    async def all_done() -> bool:
        now = await counts()
        return bool(now["delayed"] == now["ready"] == now["reserved"] == 0)

    async with running(CLOSES_ORDERS, queue.url, DATABASE=str(port)) as process:
        for _ in range(40):
            await until(all_tried)
            await queue.ask("clock", advance=15)
        tried = await queue.ask("get", id="order-close:7")
        assert tried["state"] in ("delayed", "ready", "reserved") and tried["attempt"] >= 4
        database = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
        async with database:
            await queue.ask("clock", advance=1000)  # the longest step that any of them waits for now
            await until(all_done)
        assert (await counts())["dead"] == 0
        process.terminate()
        assert (await text(process)).count("job.finished") == 20
