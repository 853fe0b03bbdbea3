"""Outages that a PHP worker lives through: of the service, and of one of its instances."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.clients.php.program import PATIENCE_S, running, told
from tests.kit.service import Client, ServiceProcess

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
