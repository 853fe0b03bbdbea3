"""The test service, `jobqueue serve --test`: its clock stands still until it is advanced, and all else follows it."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.kit import forked
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOUR_S = 3600
DAY_S = 24 * HOUR_S


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _service() -> AsyncIterator[ServiceProcess]:
    async with ServiceProcess("--test", workers=None) as service:
        yield service


@pytest_asyncio.fixture(loop_scope="module")
async def client(_service: ServiceProcess) -> AsyncIterator[Client]:
    """A client of an empty test service."""
    async with Client(_service.url) as client:
        await client.ask("reset")
        yield client


async def add(client: Client, id: str = "a", **fields: Any) -> Any:
    added = await client.ask("add", **{"topic": "t", "id": id, "body": 1} | fields)
    assert added["success"], added
    return added


async def advance(client: Client, seconds: float) -> float:
    answer = await client.ask("clock", advance=seconds)
    assert answer["success"], answer
    return float(answer["now"])


async def popped(client: Client, **fields: Any) -> list[str]:
    answer = await client.ask("pop", topic="t", count=100, **fields)
    return [job["id"] for job in answer["jobs"]]


async def state(client: Client, id: str = "a") -> Any:
    job = await client.ask("get", id=id)
    return job.get("state", job.get("code"))


async def test_a_delay_is_over_when_the_clock_says_so_and_not_before(client: Client) -> None:
    await add(client, delay=1800)
    await advance(client, 1799)
    assert await popped(client) == []
    await advance(client, 1)
    assert await popped(client) == ["a"]


async def test_the_clock_begins_at_the_real_time_and_stands_still(client: Client) -> None:
    begun = (await client.ask("clock"))["now"]
    assert abs(begun - time.time()) < 5
    await add(client, delay=0.1)
    await asyncio.sleep(0.2)
    assert await popped(client) == []
    assert (await client.ask("clock", advance=0))["now"] == pytest.approx(begun, abs=0.01)


async def test_one_long_advance_goes_through_everything_that_happens_in_it(client: Client) -> None:
    """The lease ends after 60 s, and the back-off of 30 s begins there."""
    begun = (await client.ask("clock"))["now"]
    await add(client, ttr=60, backoff=[30])
    assert await popped(client) == ["a"]
    await advance(client, HOUR_S)
    job = await client.ask("get", id="a")
    assert job["state"] == "ready"
    assert job["ready_since"] - begun == pytest.approx(90, abs=0.1)


async def test_parked_pops_get_what_an_advance_makes_ready(client: Client, _service: ServiceProcess) -> None:
    await add(client, delay=HOUR_S)
    await add(client, "b", topic="u")
    await client.ask("pause", topic="u", seconds=HOUR_S)
    async with asyncio.timeout(20):
        waits = [asyncio.create_task(client.ask("pop", topic=topic, wait=60)) for topic in ("t", "u")]
        await until(lambda: _service.parked(2))
        await advance(client, HOUR_S)
        assert [(await each)["id"] for each in waits] == ["a", "b"]


async def test_no_lease_ends_in_the_advance_that_delivered_its_job(client: Client, _service: ServiceProcess) -> None:
    """A waiting worker gets the job when the advance is over, not in its middle."""
    await add(client, delay=60, ttr=1)
    later = [{"command": "add", "topic": "later", "delay": 61 + number, "body": 1} for number in range(2000)]
    for some in (later[at : at + 20] for at in range(0, 2000, 20)):  # in all buckets, so that the advance takes a while
        await client.batch(some)
    async with asyncio.timeout(20):
        wait = asyncio.create_task(client.ask("pop", topic="t", wait=60))
        await until(lambda: _service.parked(1))
        await advance(client, DAY_S)
        assert (await wait)["id"] == "a"
    assert await state(client) == "reserved"


async def test_dead_letters_are_trimmed_at_their_age(client: Client) -> None:
    await add(client)
    await popped(client)
    await client.ask("bury", id="a")
    await advance(client, 29 * DAY_S)
    assert await state(client) == "dead"
    await advance(client, 2 * DAY_S)
    assert await state(client) in ("deleted", "NOT_FOUND")


async def test_leases_of_one_standing_moment_differ(client: Client) -> None:
    for number in range(50):
        await add(client, str(number))
    answers = await asyncio.gather(*(client.ask("pop", topic="t") for _ in range(50)))
    assert len({each["id"] for each in answers}) == 50
    for _ in range(3):
        assert (await client.ask("release", id="0", delay=0))["success"]
        again = await client.ask("pop", topic="t")
        answers.append(again)
    leases = [each["lease"] for each in answers if each["id"] == "0"]
    assert len(set(leases)) == 4


async def test_reset_forgets_everything_and_sets_the_clock_to_the_real_time(client: Client) -> None:
    await add(client, retention=HOUR_S)
    await client.ask("delete", id="a")
    await add(client, "b", delay=HOUR_S)
    await client.ask("pause", topic="t")
    await advance(client, 365 * DAY_S)
    assert abs((await client.ask("reset"))["now"] - time.time()) < 5
    assert (await client.ask("topics"))["topics"] == []
    assert (await add(client))["result"] == "created"
    assert await popped(client) == ["a"]


@pytest.mark.parametrize("span", [-1, 3651 * DAY_S, "1800", True])
async def test_an_advance_is_a_number_of_seconds(client: Client, span: object) -> None:
    answer = await client.ask("clock", advance=span)
    assert (answer["code"], answer["field"]) == ("BAD_FIELD", "advance")


async def test_a_misspelt_field_of_clock_is_named(client: Client) -> None:
    answer = await client.ask("clock", advnce=3)
    assert (answer["code"], answer["field"]) == ("UNKNOWN_FIELD", "advnce")
    assert answer["error"] == "unknown field of clock: 'advnce'; did you mean 'advance'?"


async def test_the_clock_stops_before_leases_are_too_large_for_javascript(client: Client) -> None:
    answers = [await client.ask("clock", advance=3650 * DAY_S) for _ in range(20)]
    assert answers[0]["success"]
    assert (answers[-1]["code"], answers[-1]["field"]) == ("BAD_FIELD", "advance")
    await add(client)
    assert (await client.ask("pop", topic="t"))["lease"] < 2**53


async def test_clock_goes_in_an_array_between_others(client: Client) -> None:
    answers = await client.batch(
        [
            {"command": "add", "topic": "t", "id": "a", "delay": 60, "body": 1},
            {"command": "clock", "advance": 60},
            {"command": "clok"},
            {"command": "clock", "advanse": 60},
            {"command": "pop", "topic": "t"},
        ]
    )
    assert [each.get("code") for each in answers] == [None, None, "UNKNOWN_COMMAND", "UNKNOWN_FIELD", None]
    assert answers[-1]["id"] == "a"


async def test_metrics_are_answered_however_odd_the_clock(client: Client, _service: ServiceProcess) -> None:
    await add(client, delay=DAY_S)
    await advance(client, 40 * DAY_S)
    assert await popped(client) == ["a"]
    assert await _service.figure("jobqueue_redis_up") == 1


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder for temporary files, with the settings of a real service in it."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        settings = f'data = "{folder}/data"\nport = 1\nworkers = 4\n[topics.t]\nttr_s = 7\n'
        Path(folder, "conf.toml").write_text(settings)
        yield folder


async def test_a_test_service_keeps_nothing_and_leaves_nothing(folder: str) -> None:
    service = ServiceProcess("--test", "--config", f"{folder}/conf.toml", workers=None)
    async with service, Client(service.url) as client:
        await add(client)
        assert (await client.ask("pop", topic="t"))["ttr"] == 7  # the policies of topics hold
        assert "appendonlydir" not in {name for _, names, _ in os.walk(folder) for name in names}
    assert [*os.walk(folder)] == [(folder, [], ["conf.toml"])]


async def test_the_redis_of_a_test_service_that_is_killed_dies_with_it(folder: str) -> None:
    service = await ServiceProcess("--test", workers=None).start()
    (socket,) = (f"{path}/redis.sock" for path, _, files in os.walk(folder) if "redis.sock" in files)
    await service.kill()

    async def is_gone() -> bool:
        try:
            _, writer = await asyncio.open_unix_connection(socket)
        except OSError:
            return True
        writer.close()
        return False

    await until(is_gone)


async def test_without_a_port_it_takes_a_free_one_and_says_which(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = await forked.started(("serve", "--test"), os.environ, stdout=output, stderr=output)
    await until(lambda: "service.started" in log.read_text())
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    (line,) = (line for line in log.read_text().splitlines() if "service.started" in line)
    assert '"url":"http://127.0.0.1:' in line
    assert ":8000" not in line


async def test_flags_of_a_real_service_are_refused() -> None:
    for name, value in (("--redis", "redis://127.0.0.1:1"), ("--data", "/nowhere"), ("--workers", "2")):
        ran = await forked.ran(("serve", "--test", name, value), os.environ)
        assert ran.code == 1 and name in ran.err, name


async def test_a_real_service_does_not_know_the_commands_of_a_test_service(tmp_path: Path) -> None:
    async with ServiceProcess("--data", str(tmp_path / "data")) as service, Client(service.url) as client:
        for command in ("clock", "reset"):
            answer = await client.ask(command, advance=60)
            assert answer["code"] == "UNKNOWN_COMMAND"
        near = await client.ask("clok")
        assert "clock" not in near["error"].replace("clok", "")
