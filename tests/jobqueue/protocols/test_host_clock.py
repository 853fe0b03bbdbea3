"""Protocols and sinks compare the times of jobs with Redis's clock: here the clock of the host is five minutes ahead of
it."""

from __future__ import annotations

import re
import time

import aiohttp
import pytest
import structlog
from jobqueue_client import AsyncClient

from jobqueue.app import Service
from jobqueue.dialect_settings import Beanstalkd, Dialects, Lmstfy, QueueServer
from jobqueue.settings import Settings
from jobqueue.sinks import delivered_at
from jobqueue.sinks.webhook.worker import _Call
from tests.jobqueue.protocols.queue_server.clients import Served
from tests.kit.beanstalkd import client
from tests.kit.ports import free_ports
from tests.kit.redis_server import RedisServer
from tests.kit.service import ROOT

AHEAD_S = 300
NOT_OF_JOBS = {
    *("protocols/camellia/requests.py", "protocols/mykit.py"),  # the date of an answer
    *("sinks/webhook/sink.py", "sinks/webhook/worker.py"),  # the time of a signature, and a date in a Retry-After
}
"""They read the clock for something else than the time of a job."""


async def test_a_wrong_clock_of_the_host_shifts_no_job(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_s, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real_s() + AHEAD_S)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + AHEAD_S * 10**9)
    tubes, queues, topics = free_ports(3)
    dialects = Dialects(
        beanstalkd=Beanstalkd(port=tubes), queue_server=QueueServer(port=queues), lmstfy=Lmstfy(port=topics)
    )
    settings = Settings(port=0, redis=own_server.url, grace_s=1, clock_limit_s=2 * AHEAD_S, protocols=dialects)
    async with Service(settings) as service:
        async with Served(service, queues).tcp() as tcp:
            for more in ({}, {"ttl": int(real_s()) + AHEAD_S // 2}):
                assert (await tcp.ask(action=1, queue="q", data="d", retry=30, **more))["code"] == 0
                assert (await tcp.ask(action=2, queue="q"))["data"] == "d"
        async with client(tubes) as tube:
            number = await tube.put("t", "d", delay=AHEAD_S)
            shown = await tube.document(f"stats-job {number}")
            assert int(shown["age"]) < AHEAD_S / 2 < int(shown["time-left"]) <= AHEAD_S
            assert await tube.ask(f"pause-tube t {AHEAD_S}") == "PAUSED"
            assert AHEAD_S / 2 < int((await tube.document("stats-tube t"))["pause-time-left"]) <= AHEAD_S
        async with aiohttp.ClientSession(f"http://127.0.0.1:{topics}") as session:
            assert (await session.put("/api/ns/q?ttl=1000", data=b"d")).status == 201
            shown = await (await session.get("/api/ns/q/peek")).json()
            assert shown["elapsed_ms"] < AHEAD_S * 500 and shown["ttl"] > 1000 - AHEAD_S


async def test_what_a_sink_takes_for_the_time_of_a_delivery_is_that_of_redis(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_s = time.time
    monkeypatch.setattr(time, "time", lambda: real_s() + AHEAD_S)
    [port] = free_ports(1)
    settings = Settings(port=port, redis=own_server.url, grace_s=1, clock_limit_s=2 * AHEAD_S)
    async with Service(settings), AsyncClient(f"http://127.0.0.1:{port}") as producer:
        await producer.add("t", 1)
        job = await producer.pop("t")
        assert job is not None
        assert abs(delivered_at(job.lease) - job.due) < AHEAD_S / 2
        with structlog.testing.capture_logs() as said:
            _Call(job).log(structlog.get_logger().info, "callback.called")
        assert abs(said[0]["late_s"]) < AHEAD_S / 2


def test_no_protocol_and_no_sink_asks_the_host_for_the_time_of_a_job() -> None:
    folder = ROOT / "jobqueue"
    asks = re.compile(r"\btime\.time|datetime\.now|utcnow")
    files = [file for part in ("protocols", "sinks") for file in (folder / part).rglob("*.py")]
    assert {file.relative_to(folder).as_posix() for file in files if asks.search(file.read_text())} == NOT_OF_JOBS
