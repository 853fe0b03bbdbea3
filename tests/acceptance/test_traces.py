"""Traces of the service: the spans of its commands, and the trace of a job in logs, `explain` and journal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientSession

from tests.kit.collector import Collector
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
OTHER = "0af7651916cd43dd8448eb211c80319c"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def collector() -> AsyncIterator[Collector]:
    async with Collector() as collector:
        yield collector


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("traces")
    journal = f"sqlite:///{folder / 'journal.db'}"
    environment = {"JOBQUEUE_TRACES": "otlp", "JOBQUEUE_JOURNAL": journal, "JOBQUEUE_JOURNAL_RUN": "true"}
    environment |= collector.environment
    async with ServiceProcess("--data", str(folder / "data"), environment=environment) as service:
        yield service


async def posted(service: ServiceProcess, headers: dict[str, str], content: Any) -> Any:
    async with ClientSession() as session, session.post(f"{service.url}/command", headers=headers, json=content) as got:
        return await got.json()


async def test_commands_are_spans_of_the_trace_of_their_request(service: ServiceProcess, collector: Collector) -> None:
    add = {"command": "add", "topic": "of-request", "id": "r", "body": 1}
    await posted(service, {"traceparent": PARENT}, add)
    span = await collector.one("add of-request")
    assert (span.service, span.kind, span.trace_id, span.parent_id) == ("jobqueue", "SERVER", TRACE, SPAN)
    assert span.attributes == {
        "messaging.system": "jobqueue",
        "messaging.operation.name": "add",
        "messaging.operation.type": "send",
        "messaging.destination.name": "of-request",
        "messaging.message.id": "r",
        "jobqueue.protocol": "native",
    }


async def test_an_add_is_in_the_trace_of_its_job_and_invalid_traces_are_ignored(
    service: ServiceProcess, collector: Collector
) -> None:
    async with Client(service.url) as client:
        given = {"traceparent": f"00-{OTHER}-{SPAN}-01"}
        await client.ask("add", topic="of-job", id="j", body=1, headers=given)
        await client.ask("add", topic="of-none", id="n", body=1, headers={"traceparent": "00-1-1-01"})
        await client.ask("pop", topic="empty")
        job = await client.ask("pop", topic="of-job")
        await client.ask("finish", id="j", lease=job["lease"])
        await client.batch([{"command": "add", "topic": "of-batch", "body": 1} for _ in range(3)])
        refused = await client.ask("finish", id="nobody")
        assert not refused["success"]
    assert (await collector.one("add of-job")).trace_id == OTHER
    assert (await collector.one("add of-none")).parent_id == ""
    assert (await collector.one("pop of-job")).attributes["messaging.message.id"] == "j"
    assert (await collector.one("add of-batch")).attributes["messaging.batch.message_count"] == 3
    await until(lambda: len(collector.named("finish")) == 2)
    done, failed = collector.named("finish")
    assert failed.attributes["error.type"] == "NOT_FOUND" and not failed.is_error
    assert "error.type" not in done.attributes and collector.named("pop empty") == []


async def test_explain_and_the_journal_show_the_trace_of_a_job(service: ServiceProcess) -> None:
    async with Client(service.url) as client:
        await client.ask("add", topic="untraced", id="s2", body=1, headers={"traceparent": "x"})

        async def has_begun() -> bool:
            return (await client.ask("explain", id="s2"))["since"] is not None

        await until(has_begun)
        assert "trace_id" not in (await client.ask("explain", id="s2"))["facts"]
        await client.ask("add", topic="shown", id="s", body=1, headers={"traceparent": PARENT}, retention=0)
        assert (await client.ask("explain", id="s"))["facts"]["trace_id"] == TRACE
        job = await client.ask("pop", topic="shown")
        await client.ask("finish", id="s", lease=job["lease"])

        async def is_in_journal() -> bool:
            told = await client.ask("explain", id="s")
            return told["success"] and told["facts"]["job"] is None and told["facts"].get("trace_id") == TRACE

        await until(is_in_journal)


async def test_log_lines_have_the_trace_of_their_request(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {"JOBQUEUE_LOG_FORMAT": "json", "JOBQUEUE_LOG_LEVEL": "debug"}
    async with ServiceProcess("--data", str(tmp_path / "data"), environment=environment, log=log) as service:
        await posted(service, {"traceparent": PARENT}, {"command": "stats"})
        await posted(service, {"traceparent": "nonsense", "X-Jobqueue-Actor": "me"}, {"command": "stats"})
        await posted(service, {"traceparent": PARENT, "X-Jobqueue-Actor": "me"}, {"command": "stats"})
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    answered = [line for line in lines if line["event"] == "command.answered"]
    assert [line.get("trace_id") for line in answered] == [TRACE, None, TRACE]


async def test_beside_a_collector_that_hangs_the_service_works_and_stops(tmp_path: Path) -> None:
    reached = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await reader.read()  # to the end of the connection, and answers nothing
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        environment = {"JOBQUEUE_TRACES": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        # The export that hangs has an hour: a stop that waited for it would never end here.
        environment |= {"OTEL_EXPORTER_OTLP_TIMEOUT": "3600", "OTEL_BSP_SCHEDULE_DELAY": "10"}
        async with ServiceProcess("--data", str(tmp_path / "data"), environment=environment) as service:
            async with Client(service.url) as client:
                assert (await client.ask("add", topic="t", body=1))["success"]
                await reached.wait()
                assert (await client.ask("add", topic="t", body=1))["success"]
            assert await service.stop() == 0
