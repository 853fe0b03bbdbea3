"""The relay of an outbox: what a transaction commits reaches the service once and in order, and nothing else does."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from jobqueue_client import AsyncClient

from jobqueue.journal.url import address
from jobqueue.outbox import relay
from jobqueue.outbox.relay import Figures, Relay
from jobqueue.outbox.source import Row, Source
from tests.jobqueue.outbox.conftest import Outbox, adds
from tests.kit.service import JOBQUEUE, Client, ServiceProcess
from tests.kit.waiting import until


@contextlib.asynccontextmanager
async def relaying(outbox: Outbox, url: str) -> AsyncIterator[Figures]:
    figures = Figures()
    async with AsyncClient(url, retry_for_s=0) as client:
        own = Relay(Source(address(outbox.url), "jobqueue_outbox"), client, figures)
        task = asyncio.create_task(own.run())
        try:
            yield figures
        finally:
            own.stop()
            await task


def is_up(figures: Figures) -> float | None:
    return figures.registry.get_sample_value("jobqueue_outbox_up")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[ServiceProcess]:
    async with ServiceProcess("--data", str(tmp_path / "data")) as service:
        yield service


async def test_rows_become_commands_in_order_and_a_rollback_becomes_none(
    outbox: Outbox, service: ServiceProcess
) -> None:
    due = round(time.time()) + 3600.25
    options = {"priority": 7, "headers": {"shop": "7"}, "tags": ["a"]}
    await outbox.write(*adds(["rolled-back"]), commit=False)
    await outbox.write(
        *adds(["a"], due=due, options=options),
        *adds(["b", "c", "none"], due=due),
        {"id": "b", "action": "update", "body": None, "due": due + 1},
        {"id": "c", "action": "delete"},
        {"id": "never-was", "action": "delete"},
    )
    async with relaying(outbox, service.url), Client(service.url) as client:
        await until(outbox.is_empty)
        a, b, c = [await client.ask("get", id=each) for each in ("a", "b", "c")]
        assert (a["due"], a["value"], a["priority"], a["headers"]) == (due, {"of": "a"}, 7, {"shop": "7"})
        assert (a["retention"], a["tags"], b["due"], b["value"], c["state"]) == (86400, ["a"], due + 1, None, "deleted")
        assert (await client.ask("get", id="rolled-back"))["code"] == "NOT_FOUND"
        # What is written while it runs follows soon, and a repetition of what is there is done.
        await outbox.write(*adds(["a"]), *adds(["d"], due=due))
        await until(outbox.is_empty)
        assert (await client.ask("get", id="d"))["state"] == "delayed"


async def test_a_row_that_is_refused_keeps_the_reason_and_holds_up_its_id_only(
    outbox: Outbox, service: ServiceProcess
) -> None:
    await outbox.write(
        *adds(["bad"], options={"priority": 99}),
        *adds(["no-json"]),
        {"id": "bad", "action": "delete"},
        *adds(["good"], due=time.time() + 3600),
    )
    await outbox.sql("UPDATE jobqueue_outbox SET body = '{' WHERE id = 'no-json'")
    async with relaying(outbox, service.url) as figures, Client(service.url) as client:

        async def is_settled() -> bool:
            return [row[0] for row in await outbox.rows()] == ["bad", "no-json", "bad"] and bool(
                (await outbox.rows())[0][1]
            )

        await until(is_settled)
        (_, first), (_, second), (_, third) = await outbox.rows()
        assert first and "priority" in first and second == "body is not JSON" and third is None
        assert (await client.ask("get", id="good"))["state"] == "delayed"
        await until(lambda: figures.registry.get_sample_value("jobqueue_outbox_refused_rows") == 2, within_s=60)
        await outbox.sql("DELETE FROM jobqueue_outbox WHERE id = 'no-json'")
        await outbox.sql("UPDATE jobqueue_outbox SET options = NULL, error = NULL WHERE id = 'bad'")
        await until(outbox.is_empty)
        assert (await client.ask("get", id="bad"))["state"] == "deleted"


@pytest.mark.parametrize("journal_database", ["sqlite"], indirect=True)
async def test_a_wrong_url_is_no_fault_of_the_rows(outbox: Outbox, service: ServiceProcess) -> None:
    await outbox.write(*adds(["a", "b"], due=time.time() + 3600))
    async with relaying(outbox, f"{service.url}/nowhere") as figures:
        await until(lambda: is_up(figures) == 0)
        assert await outbox.rows() == [("a", None), ("b", None)]


@pytest.mark.parametrize("journal_database", ["sqlite"], indirect=True)
async def test_a_topic_that_is_full_and_a_job_in_hand_hold_up_nothing_else(outbox: Outbox, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("[topics.full]\nmax_pending = 1\n")
    full = [{"id": f"full:{number}", "topic": "full", "body": 1, "due": time.time() + 3600} for number in range(3000)]
    await outbox.write(*full)
    await outbox.write(*adds(["last"]))
    async with (
        ServiceProcess("--data", str(tmp_path / "data"), "--config", str(settings)) as service,
        Client(service.url) as client,
        relaying(outbox, service.url),
    ):
        job = await client.ask("pop", topic="t", wait=60)
        assert job["id"] == "last"
        # An update waits for the worker, and then finds that the job has ended.
        await outbox.write({"id": "last", "action": "update", "body": 2}, *adds(["after"]))
        assert (await client.ask("pop", topic="t", wait=60))["id"] == "after"
        assert ("last", None) in await outbox.rows()
        await client.ask("finish", id="last", lease=job["lease"])

        async def is_settled() -> bool:
            return all(row[0].startswith("full") for row in await outbox.rows())

        await until(is_settled)
        assert len(await outbox.rows()) == len(full) - 1
        assert not any(row[1] for row in await outbox.rows())


@pytest.mark.parametrize("journal_database", ["sqlite"], indirect=True)
async def test_a_row_that_no_request_can_hold_is_refused_unread(
    outbox: Outbox, service: ServiceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "_LONGEST", 50)
    await outbox.write(*adds(["long"], options={"tags": ["x" * 60]}), *adds(["short"]))
    async with relaying(outbox, service.url):

        async def is_settled() -> bool:
            rows = await outbox.rows()
            return [row[0] for row in rows] == ["long"] and "characters" in (rows[0][1] or "")

        await until(is_settled)


def test_what_is_no_command_is_not_sent() -> None:
    row = Row(1, "a", "purge", "t", None, None, None)
    for bad in (row, row._replace(action="add", options="[]"), row._replace(action="add", body="{")):
        with pytest.raises(relay.BadRow):
            relay.command_of(bad)


async def test_rows_wait_for_a_service_that_is_away(outbox: Outbox, service: ServiceProcess) -> None:
    await service.kill()
    await outbox.write(*adds(["a"], due=time.time() + 3600))
    async with relaying(outbox, service.url) as figures:
        await until(lambda: is_up(figures) == 0)
        assert await outbox.rows() == [("a", None)]
        await service.start()
        await until(outbox.is_empty)


@pytest.mark.parametrize("journal_database", ["postgresql", "mariadb"], indirect=True)
async def test_a_relay_that_begins_without_its_database_waits_for_it(outbox: Outbox, service: ServiceProcess) -> None:
    assert outbox.database.server
    await outbox.write(*adds(["a"], due=time.time() + 3600))
    await outbox.engine.dispose()
    outbox.database.server.kill()
    async with relaying(outbox, service.url) as figures:
        await until(lambda: is_up(figures) == 0)
        outbox.database.server.start()
        await until(outbox.is_empty)


class Killed:
    """Relays as processes, which are killed again and again."""

    def __init__(self, outbox: Outbox, url: str, log: Path) -> None:
        self._command = [*JOBQUEUE, "outbox", "--from", outbox.url, "--url", url]
        self._log = log
        self.relays: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self.relays.append(await asyncio.create_subprocess_exec(*self._command, stdout=log, stderr=log))

    async def kill_one(self) -> None:
        first = self.relays.pop(0)
        first.kill()
        await first.wait()

    async def stop(self) -> list[int]:
        for each in self.relays:
            each.send_signal(signal.SIGTERM)
        return [await each.wait() for each in self.relays]


async def test_kills_of_relays_service_and_database_lose_and_swap_nothing(
    outbox: Outbox, service: ServiceProcess, tmp_path: Path
) -> None:
    due = time.time() + 3600
    ids = [f"job:{number}" for number in range(400)]
    killed = Killed(outbox, service.url, tmp_path / "log")
    relays = 1 if outbox.database.server is None else 3
    for _ in range(relays):
        await killed.start()

    async def write() -> None:
        for version in range(1, 5):
            for begin in range(0, len(ids), 40):
                rows: list[dict[str, Any]] = adds(ids[begin : begin + 40], due=due)
                if version > 1:
                    rows = [{"id": row["id"], "action": "update", "body": {"version": version}} for row in rows]
                await outbox.write(*rows)
                await outbox.write(*rows[:1], commit=False)

    async def break_things() -> None:
        for turn in range(4):
            await asyncio.sleep(0.3)
            await killed.kill_one()
            await killed.start()
            if turn == 1:
                await service.kill()
                await service.start()

    await asyncio.gather(write(), break_things())
    if outbox.database.server is not None:
        outbox.database.server.kill()
        outbox.database.server.start()
    await outbox.engine.dispose()
    await until(outbox.is_empty, within_s=120)
    assert set(await killed.stop()) <= {0, -signal.SIGTERM}  # of one that had not begun yet
    async with Client(service.url) as client:
        jobs = await client.batch([{"command": "get", "id": each} for each in ids])
        assert [job["value"] for job in jobs] == [{"version": 4}] * len(ids)
        assert (await client.ask("stats", topic="t"))["counts"]["delayed"] == len(ids)


@pytest.mark.parametrize("journal_database", ["sqlite"], indirect=True)
async def test_a_file_has_one_relay(outbox: Outbox, service: ServiceProcess) -> None:
    async with relaying(outbox, service.url):
        command = [*JOBQUEUE, "outbox", "--from", outbox.url, "--url", service.url]
        second = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        _, said = await second.communicate()
        assert second.returncode == 2 and b"another relay reads" in said
