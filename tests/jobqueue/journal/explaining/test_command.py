"""`jobqueue explain` and the command of the protocol, with a service that reads a journal."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from buckets.pool.pool import Pool
from jobqueue.cli.journal.explained import lines
from jobqueue.cli.main import main
from jobqueue.schema.explain_answers import Explained
from tests.buckets.jobs import add, delete, finish, pop_one
from tests.jobqueue.journal.reading.drained import Journal
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until


@pytest.fixture
async def service(lite: Journal, redis_server: RedisServer, tmp_path: Path) -> AsyncIterator[ServiceProcess]:
    """A service that reads a journal."""
    config = tmp_path / "jobqueue.toml"
    config.write_text(f'journal = "{lite.url}"\n')
    async with ServiceProcess("--redis", redis_server.url, "--config", str(config)) as service:
        yield service


async def a_life(journal: Journal, pool: Pool) -> None:
    """Two lives of `a`: one that was deleted, one that waited and was finished."""
    await add(pool, "a")
    await delete(pool, "a")
    await add(pool, "a", if_exists="renew")
    await asyncio.sleep(0.11)
    await pop_one(pool, worker="w\u202e1")
    await finish(pool, "a")
    await journal.drain()


async def test_a_job_is_explained_by_a_service_as_text_and_as_json(
    lite: Journal, live_pool: Pool, service: ServiceProcess
) -> None:
    await a_life(lite, live_pool)
    shell = Shell(service.url)

    async def read() -> bool:  # it answers without the journal while that takes longer than 2 s
        return bool((await shell.run("explain", "a")).json["timeline"])

    await until(read)
    ran = await shell.run("explain", "a")
    answer = ran.json
    assert (ran.code, [line["what"] for line in answer["timeline"]]) == (0, ["added", "delivered", "finished"])
    msgspec.convert(answer, Explained, strict=True)
    shown = await shell.shown("explain", "a")
    assert shown.startswith("a   t   finished   life 2 of 2   delivered 1")
    assert " late\nfinished at 20" in shown
    assert "ms: no job of the topic was delivered: nobody popped it, no pause" in shown
    assert "worker w\\u202e1, attempt 1 of 16" in shown and "\u202e" not in shown
    assert "\nsum: timers 0 ms late, waited 1" in shown
    assert "\nthe journal goes back to 20" in shown
    everything = await shell.shown("explain", "a", "--life", "all")
    assert everything.count("life 1 of 2, created") == everything.count("life 2 of 2, created") == 1
    first = (await shell.run("explain", "a", "--life", str(answer["facts"]["lives"][0]))).json
    assert [line["what"] for line in first["timeline"]] == ["added", "deleted"]
    printed = re.findall(r"life \d of 2, created (.*)", everything)
    iso = printed[0].removesuffix(" UTC").replace(" ", "T") + "Z"
    for life in ("1", printed[0], printed[0].removesuffix(" UTC"), iso):
        assert (await shell.run("explain", "a", "--life", life)).json["timeline"] == first["timeline"], life
        alone = await shell.run("explain", "a", "--life", life, "--from", lite.url)
        assert alone.json["timeline"] == first["timeline"], life
    none = await shell.run("explain", "a", "--life", "3")
    assert none.code == 1 and "this job has no life 3: 2 lives of it are known" in none.err
    alone = await shell.run("explain", "a", "--from", lite.url)
    assert alone.json["timeline"] == answer["timeline"]
    unknown = await shell.run("explain", "b")
    assert unknown.code == 1
    assert "neither in Redis nor in the journal, which goes back to 20" in unknown.err


async def test_the_command_answers_as_its_struct_says_in_each_state(
    lite: Journal, live_pool: Pool, service: ServiceProcess
) -> None:
    await add(live_pool, "delayed", delay_ms=60_000)
    await add(live_pool, "ready", topic="r")
    await add(live_pool, "reserved", topic="v")
    await add(live_pool, "dead", topic="d")
    await pop_one(live_pool, "v")
    await live_pool.bury((await pop_one(live_pool, "d")).id)
    await live_pool.redis.read("SET", live_pool.keys[0].job("unreadable"), "?")
    await live_pool.redis.read("HSET", live_pool.keys[0].aside, "aside", "?")
    await lite.drain()
    async with Client(service.url) as client:
        for state in ("delayed", "ready", "reserved", "dead", "unreadable", "aside"):
            answer: dict[str, Any] = await client.ask("explain", id=state)
            assert answer["facts"]["state"] == state
            assert "value" not in str(answer)
            msgspec.convert(answer, Explained, strict=True)
            assert list(lines(answer))
        assert (await client.ask("explain", id="dead", life="some"))["field"] == "life"
        assert (await client.ask("explain", id="dead", life=-1))["field"] == "life"
        assert (await client.ask("explain", id="nobody"))["code"] == "NOT_FOUND"


async def test_a_timer_is_told_by_the_name_of_its_instance(
    lite: Journal, live_pool: Pool, service: ServiceProcess
) -> None:
    await add(live_pool, "a", delay_ms=60_000)
    async with Client(service.url) as client:
        timer = (await client.ask("explain", id="a"))["facts"]["timer"]
    assert timer.endswith(f":{service.port}")


async def test_a_pop_that_waits_is_told(lite: Journal, live_pool: Pool, service: ServiceProcess) -> None:
    await add(live_pool, "a", delay_ms=60_000)
    await live_pool.redis.read("SET", live_pool.keys[0].paused("t"), "0")
    async with Client(service.url) as client, Client(service.url) as other:
        waiting = asyncio.create_task(other.ask("pop", topic="t", wait=30))

        async def is_waiting() -> bool:
            return bool((await client.ask("workers", topic="t"))["workers"])

        await until(is_waiting)
        await client.ask("run", id="a")
        facts = (await client.ask("explain", id="a"))["facts"]
        assert (facts["waiting"], facts["paused"]) == (1, True)
        await client.ask("resume", topic="t")
        assert (await waiting)["id"] == "a"


def test_what_goes_wrong_is_told_in_a_sentence_and_by_the_exit_code(tmp_path: Path) -> None:
    none = f"sqlite:///{tmp_path}/none.db"
    wrong = [
        (["a b"], 2, "'a b' cannot be an id, which is a string of 1 to 255"),
        (
            ["a", "--life", "soon"],
            2,
            "'soon' is neither the number of a life, nor the time at which it was created, nor all",
        ),
        (["a", "--life", "-1"], 2, "nor all"),
        (["a", "--life", "nan"], 2, "nor all"),
        (["a", "--source", "x"], 2, "--source goes with --from"),
        (["a", "--from", none], 2, "there is no file"),
        (["a", "--from", none, "--from-file", "x"], 2, "--from and --from-file exclude each other"),
        (["a", "--from-file", str(tmp_path / "none")], 2, "--from-file"),
        (["a", "--from", "mysql://x:geheim@127.0.0.1:1/x"], 2, "can see the password in --from; use --from-file"),
        (["a", "--url", "http://127.0.0.1:1"], 3, "no service listens at http://127.0.0.1:1"),
    ]
    for arguments, code, words in wrong:
        ran = CliRunner().invoke(main, ["explain", *arguments])
        assert ran.exit_code == code, (arguments, ran.output)
        assert words in " ".join(ran.output.split()), (arguments, ran.output)
        assert "geheim" not in ran.output
