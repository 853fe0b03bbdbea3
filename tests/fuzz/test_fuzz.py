"""The fuzzer: requests of all kinds against a real service.

No answer may be a 500 or differ from the OpenAPI description, and a refused request must change nothing in Redis. At
the end the process is alive, its log shows no bug, and the books balance. TEST_FUZZ sets the number of requests;
TEST_FUZZ_SEED makes them differ from the fixed ones of other runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.schema.params import BY_NAME
from tests.buckets.books import check_books
from tests.fuzz.judge import REDIS_OPTIONS, Judge
from tests.fuzz.requests import MAX_BODY, MAX_REQUEST, Maker
from tests.fuzz.wire import Wire
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess

REQUESTS = int(os.environ.get("TEST_FUZZ", "5000"))
SEED = int(os.environ.get("TEST_FUZZ_SEED", "0"))

# Most of the fuzzer's jobs leave these to the settings; with long spans no timer has anything to do during the run.
SETTINGS = f"""
default_ttr_s = 86400.0
default_backoff_s = []
default_retention_s = 2592000.0
max_request_bytes = {MAX_REQUEST}
max_body_bytes = {MAX_BODY}
[topics.u]
max_pending = 3
[virtual_topics]
both = ["t", "u"]
"""


@contextmanager
def fuzzed(log: Path, *, quiet: bool) -> Iterator[tuple[Judge, dict[str, Any]]]:
    """A judge of a service, and the service's description; afterwards the service is checked."""
    config = log.with_suffix(".toml")
    config.write_text(SETTINGS)
    with (
        tempfile.TemporaryDirectory(prefix="jq-") as folder,
        RedisServer(Path(folder), *REDIS_OPTIONS) as server,
        asyncio.Runner() as runner,
    ):
        service = ServiceProcess("--redis", server.url, "--config", str(config), log=log)
        runner.run(service.start())
        try:
            document = described(service.port)
            judge = Judge(document, service.port, str(server.socket), quiet=quiet)
            with closing(judge):
                yield judge, document
            assert service.process and service.process.returncode is None
        finally:
            code = runner.run(service.stop())
        assert code == 0
        runner.run(balanced(server.url))
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert not {"command.failed", "request.failed", "timer.failed", "timer.broke", "task.ended", "job.set_aside"} & set(
        events
    ), events


def described(port: int) -> dict[str, Any]:
    wire = Wire(port)
    response = wire.exchange(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wire.close()
    assert response and response.status == 200
    document: dict[str, Any] = response.json
    return document


async def balanced(url: str) -> None:
    """Check the books of a namespace whose service has stopped."""
    async with AsyncExitStack() as stack:
        redis = Redis(url)
        stack.push_async_callback(redis.close)
        pool = await Pool.open(redis)
        stack.push_async_callback(pool.close)
        for pause in await redis.read("KEYS", "{jq:0}:p:*"):
            await redis.read("DEL", pause)
        await check_books(redis, pool)


def fuzz(judge: Judge, maker: Maker, number: int) -> None:
    """Send that many requests; a failure is reported with the request and the seed that repeats it."""
    for turn in range(number):
        request = maker.request()
        try:
            judge.send(request)
        except Exception as error:
            error.add_note(f"request {turn} of TEST_FUZZ_SEED={SEED}: {request!r:.3000}")
            raise


@pytest.mark.timeout(3600)
def test_no_request_breaks_the_service_and_a_refused_one_changes_nothing(tmp_path: Path) -> None:
    with fuzzed(tmp_path / "service.log", quiet=True) as (judge, document):
        fuzz(judge, Maker(document, SEED, quiet=True), REQUESTS)
        # So that the run does not consist of one kind of refusal only.
        missing = {
            *BY_NAME,
            "BAD_JSON",
            "BAD_FIELD",
            "UNKNOWN_FIELD",
            "TOO_LARGE",
            "NOT_FOUND",
            "STALE_LEASE",
            "TOPIC_FULL",
        } - {*judge.seen, "token"}  # which a service without tokens always refuses
        assert not missing, judge.seen
        print(judge.sent, judge.seen)


def test_short_spans_with_timers_at_work_break_nothing_either(tmp_path: Path) -> None:
    with fuzzed(tmp_path / "service.log", quiet=False) as (judge, document):
        fuzz(judge, Maker(document, SEED, quiet=False), REQUESTS // 10)
