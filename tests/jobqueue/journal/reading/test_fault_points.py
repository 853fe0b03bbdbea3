"""A reader that is killed before or behind any of its commands, to Redis or SQL, loses nothing and repeats nothing."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from buckets.events.switch import stream_key
from buckets.pool.pool import Pool
from jobqueue.journal.reading.running import Drain
from jobqueue.journal.reading.verdict import FORGOTTEN, LOST, UNKNOWN
from jobqueue.journal.tables import minute, schedule
from tests.buckets.events.scheduled import there
from tests.jobqueue.journal.reading.drained import Journal, opened, switched_on
from tests.jobqueue.journal.reading.test_shard import told, whole_life
from tests.jobqueue.journal.scheduled import define, meet
from tests.kit.redis_server import RedisServer

OF_STREAM = ("settle", "pending", "fresh", "entries", "deliver_behind", "records", "totals")
OF_STORE = ("position", "write")
OF_SQL = ("_run",)
"""All that a reader asks of Redis and of SQL for its events."""


EVERY = pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every one"])
"""Which of the commands."""


class Killed(BaseException):
    """The process ends here."""


class Fault:
    """Counts the commands of a drain; the process ends at one of them, before it or behind it."""

    def __init__(self, drain: Drain, at: int, *, behind: bool) -> None:
        self._at, self._behind, self._count = at, behind, 0
        self.name = ""
        """Of the command at which it ended."""
        self.struck = asyncio.Event()
        store: Any = drain._sql._store
        for owner, names in [(store, OF_STORE), (drain._sql, OF_SQL), *((each, OF_STREAM) for each in drain._streams)]:
            for name in names:
                setattr(owner, name, self._wrapped(name, getattr(owner, name)))
        for reader in drain.readers:  # who is killed gives nothing up; that its lock ends by itself is not waited for
            setattr(reader.lock, "run", _held_for_ever(reader.lock))  # noqa: B010

    def _wrapped(self, name: str, command: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def wrapped(*args: Any, **named: Any) -> Any:
            if self.struck.is_set():
                raise Killed
            self._count += 1
            if self._count != self._at:
                return await command(*args, **named)
            if self._behind:
                await command(*args, **named)
            self.name = name
            self.struck.set()
            raise Killed

        return wrapped


def _held_for_ever(lock: Any) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        lock._until = float("inf")
        await asyncio.Event().wait()

    return run


async def killed_at(journal: Journal, redis_url: str, at: int, *, behind: bool) -> str:
    """Drain until the n-th command; its name, or nothing where there are not that many."""
    async with opened(journal.shards, journal.url, redis_url) as own:
        drain = own.new_drain()
        fault = Fault(drain, at, behind=behind)
        running = asyncio.create_task(drain.run(asyncio.Event()))
        struck, drained = asyncio.create_task(fault.struck.wait()), asyncio.create_task(journal.until_drained())
        await asyncio.wait({struck, drained}, return_when=asyncio.FIRST_COMPLETED)
        for task in (running, struck, drained):
            task.cancel()
        await asyncio.gather(running, struck, drained, return_exceptions=True)
    return fault.name


async def new_namespace(pool: Pool) -> None:
    await pool.redis.read("FLUSHALL")
    await pool.ensure_meta(0)
    await switched_on(pool)


async def lives(pool: Pool) -> list[str]:
    """Tell of some jobs; the ids of their events, in order."""
    await whole_life(pool, "a")
    await told(pool, "large", body=b'"' + b"x" * 5_000 + b'"')
    await define(pool, "s", in_ms=-1)
    await meet(pool, "s")
    occurrence = f"s@{(await there(pool))['s'].last}"
    await whole_life(pool, "b")
    return ["a", "a", "a", "large", "~s", occurrence, "~s", "b", "b", "b"]


async def must_be_whole(journal: Journal, ids: list[str], kinds: list[int]) -> None:
    events = await journal.events()
    assert [row["id"] for row in events] == ids
    assert [(row["ms"], row["seq"]) for row in events] == sorted((row["ms"], row["seq"]) for row in events)
    assert sum(row["events"] for row in await journal.rows(minute)) == len([each for each in ids if each != "~s"])
    [known] = await journal.rows(schedule)
    assert known["last"] and (known["last"], known["gone"]) == ((await there(journal.shards))["s"].last, None)
    assert [row["kind"] for row in await journal.gaps()] == kinds
    assert all(row["walked"] for row in await journal.gaps() if row["kind"] != FORGOTTEN)
    assert (await journal.jobs())["large"]["body_kept"] == 1


@EVERY
@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
async def test_a_reader_killed_at_any_command_of_a_first_run(
    live_pool: Pool, tmp_path: Path, redis_server: RedisServer, behind: bool, step: int
) -> None:
    names = set()
    for at in itertools.count(1 + (behind and step > 1), step):
        await new_namespace(live_pool)
        ids = await lives(live_pool)
        async with opened(live_pool, f"sqlite:///{tmp_path}/{at}.db", redis_server.url) as journal:
            name = await killed_at(journal, redis_server.url, at, behind=behind)
            await journal.drain()
            await must_be_whole(journal, ids, [UNKNOWN])
        if not name:
            break
        names.add(name)
    assert step > 1 or names >= {"settle", "pending", "fresh", "records", "position", "write", "_run"}


@EVERY
@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
async def test_a_reader_killed_at_any_command_behind_a_gap_and_a_return(
    live_pool: Pool, tmp_path: Path, redis_server: RedisServer, behind: bool, step: int
) -> None:
    names = set()
    key = stream_key(live_pool, 0)
    for at in itertools.count(1 + (behind and step > 1), step):
        await new_namespace(live_pool)
        async with opened(live_pool, f"sqlite:///{tmp_path}/{at}.db", redis_server.url) as journal:
            ids = await lives(live_pool)
            older = await live_pool.redis.read("DUMP", key)
            await told(live_pool, "forgotten")
            await journal.drain()
            await live_pool.redis.read("RESTORE", key, 0, older, "REPLACE")
            await told(live_pool, "c")
            name = await killed_at(journal, redis_server.url, at, behind=behind)
            await journal.drain()
            await told(live_pool, "lost", "d")
            await live_pool.redis.read("XTRIM", key, "MAXLEN", "=", 1)
            second = await killed_at(journal, redis_server.url, at, behind=behind)
            await journal.drain()
            await must_be_whole(journal, [*ids, "forgotten", "c", "d"], [UNKNOWN, FORGOTTEN, LOST])
            assert [row["entries"] for row in await journal.gaps()] == [0, 0, 1]
        if not name and not second:
            break
        names |= {name, second}
    assert step > 1 or names >= {"settle", "entries", "pending", "fresh", "position", "write", "_run"}
