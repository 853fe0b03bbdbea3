"""The fast paths of add, due, pop and finish have the same result as their complete paths, byte by byte, events too.

Two namespaces go through the same; in one of them the fast paths are closed. The tests of the moves themselves, and the
model, do not know which path a job took.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
import re
import string
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis as Client

from buckets.clock import HeldClock
from buckets.errors import JobQueueError
from buckets.job import Job, NewJob
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.redis.link import Orphan
from buckets.scripts import SCRIPTS, Script, Value
from tests.buckets.books import check_books
from tests.buckets.events.switched import switch_on
from tests.buckets.schedules.scheduled import Scheduled
from tests.kit.everything import everything
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import tick_all, until

# A line of each script, and what closes its fast path when it follows that line.
_SIMPLE = ("local function simple(front, state, length)\n", "do return nil end\n")
FAST_PATHS = {
    "add": ("local alone, run, keys = true, 1, {}\n", "alone = false\n"),
    "due": _SIMPLE,
    "pop": _SIMPLE,
    "finish": _SIMPLE,
}
STEPS = 400
NAME_CHARACTERS = string.ascii_letters + string.digits + "._-:/@#+=%ü"
WRITES = {"RPUSH", "ZADD", "HINCRBY", "HDEL", "MSET", "SETRANGE", "SET", "UNLINK", "ZREM", "LPOP", "XADD", "SPUBLISH"}


@functools.cache
def closed(name: str) -> Script:
    line, way_out = FAST_PATHS[name]
    assert SCRIPTS[name].text.count(line) == 1
    return replace(SCRIPTS[name], text=SCRIPTS[name].text.replace(line, line + way_out))


class CompletePath(Redis):
    """Runs the scripts with their fast paths closed."""

    async def call(
        self,
        name: str,
        rest: Sequence[Value] = (),
        *,
        repeat: bool | None = None,
        orphan: Orphan | None = None,
        **arguments: Value,
    ) -> Any:
        script = closed(name) if name in FAST_PATHS else SCRIPTS[name]
        command = ("EVALSHA", script.sha, *script.arguments(arguments, rest))
        return await self._metered(name, None, command, script.repeatable, script, orphan)

    def open_link(self, key: str | bytes) -> None:
        """None, so that nothing goes by a lane."""


class Written:
    """The commands with which scripts wrote, in their order, as Redis itself reports them."""

    def __init__(self, url: str) -> None:
        self._client = Client.from_url(url)

    def __enter__(self) -> Written:
        self._monitor: Any = self._client.monitor()  # type: ignore[no-untyped-call]
        self._monitor.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._monitor.__exit__(*exception)
        self._client.close()

    def names(self) -> list[str]:
        """The commands until now, each where it came first."""
        self._client.publish("end of", "these")
        names: dict[str, None] = {}
        while True:
            seen = self._monitor.next_command()
            name = seen["command"].split()[0].upper()
            if name == "PUBLISH" and seen["client_type"] != "lua":
                return list(names)
            if seen["client_type"] == "lua" and name in WRITES:
                names[name] = None


async def contents(redis: Redis, pool: Pool) -> dict[bytes, Any]:
    """All keys of a namespace without its name, and what they hold."""
    found: dict[bytes, Any] = {}
    tag = pool.keys[0].tag.encode()
    for key, stored in (await everything(redis, tag.decode() + "*")).items():
        value = stored.value
        if stored.kind == b"hash":
            value = dict(zip(value[::2], value[1::2], strict=True))
        elif stored.kind == b"stream":
            value = [fields for _, fields in value]
        found[key[len(tag) :]] = value
        if key.startswith(tag + b"j:"):  # tombstones expire, within a minute of each other; no minute ends in the test
            found[b"end of " + key] = (stored.ends_in_ms + 19_000) // 60_000
    return {key.replace(tag, b""): value for key, value in found.items()}


class Twins:
    """A pool and a twin that takes the complete path; whatever is done to one is done to the other."""

    def __init__(self, pool: Pool, twin: Pool, clock: HeldClock, said: dict[str, list[str]]) -> None:
        self.pool = pool
        self.twin = twin
        self.clock = clock
        self.said = said  # the scripts' messages on the bells, by channel
        self.clock.now_us += 123
        for each in (pool, twin):
            each._turn = itertools.count()

    async def both(self, act: Callable[[Pool], Awaitable[Any]]) -> Any:
        answers = [plainly(await act(each)) for each in (self.pool, self.twin)]
        assert answers[0] == answers[1]
        return answers[0]

    async def check(self) -> None:
        redis = self.pool.redis
        assert await contents(redis, self.pool) == await contents(redis, self.twin)
        await self.both(self.messages)

    async def messages(self, pool: Pool) -> list[str]:
        """The messages on the bell since the last call."""
        said = self.said[pool.keys[0].bell]
        await pool.redis.read("SPUBLISH", pool.keys[0].bell, "the end")
        await until(lambda: "the end" in said)
        messages = sorted(message.replace(pool.keys[0].tag, "") for message in said)
        said.clear()
        return messages


async def due_all(pool: Pool) -> list[Any]:
    """The replies of the timers' scripts, with the schedules that they met and how late jobs were."""
    replies = []
    for bucket in range(pool.buckets):
        moved, wait, _, _, met, *late = await pool.call("due", 0, now=pool.clock.now(), bucket=bucket, page=100)
        replies.append([moved, wait, met, *sorted(zip(late[::3], late[1::3], late[2::3], strict=True))])
    return replies


def plainly(answer: Any) -> Any:
    """The answer with errors replaced by their words, so that they can be compared."""
    if isinstance(answer, JobQueueError):
        return (answer.code, str(answer))
    return [plainly(each) for each in answer] if isinstance(answer, list) else answer


@asynccontextmanager
async def both_paths(redis: Redis, redis_server: RedisServer, clock: HeldClock) -> AsyncIterator[Twins]:
    """Twins in an empty Redis."""
    await redis.read("FLUSHALL")
    complete_path = CompletePath(redis_server.url)
    pool = await Pool.open(redis, "plain", buckets=3, clock=clock)
    twin = await Pool.open(complete_path, "long", buckets=3, clock=clock)
    for each in (pool, twin):
        await switch_on(redis, each.keys[0])
    said: dict[str, list[str]] = {each.keys[0].bell: [] for each in (pool, twin)}
    connected = [asyncio.Event() for _ in said]
    hearing = asyncio.gather(
        *(redis.listen(each, said[each].append, begun.set) for each, begun in zip(said, connected, strict=True))
    )
    for begun in connected:
        await begun.wait()
    try:
        yield Twins(pool, twin, clock, said)
    finally:
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
        await pool.close()
        await twin.close()
        await complete_path.close()


@pytest.fixture
async def twins(redis: Redis, redis_server: RedisServer, clock: HeldClock) -> AsyncIterator[Twins]:
    async with both_paths(redis, redis_server, clock) as twins:
        yield twins


LIVES: list[dict[str, Any]] = [
    {},
    {"topic": "ü" * 120},  # the topic does not fit into the bytes that are read first
    {"delay_ms": 1_000},
    {"delay_ms": 90_000_000},  # counted by the hour
    {"delay_ms": 86_400_000},
    {"due_ms": 1},
    {"due_ms": 1_800_000_005_000},
    {"priority": 0},
    {"priority": 9, "tries": 1},
    {"ttr_ms": 0},
    {"ttl_ms": 500},
    {"ttl_ms": 5_000, "delay_ms": 700},
    {"retention_ms": 0},
    {"retention_ms": 3_600_000, "delay_ms": 5},
    {"backoff_ms": (10, 20), "delay_ms": 5},
    {"headers": b'{"a":"b"}', "tags": b'["c"]'},
    {"headers": b"h" * 300, "delay_ms": 5},
    {"backoff_ms": (10,), "retention_ms": 0, "headers": b"{}", "ttl_ms": 60_000},
    {"note": b"n" * 64},
    {"note": b"n", "retention_ms": 0, "delay_ms": 5},
    {"keeps_body": True},
    {"keeps_body": True, "delay_ms": 5, "retention_ms": 0},
    {"keeps_body": True, "delay_ms": 5, "note": b"n", "ttl_ms": 5_000},
    {"keeps_body": True, "ttr_ms": 0, "headers": b"{}"},
    {"keeps_body": True, "ttr_ms": 0, "retention_ms": 3_600_000},
    {"body": b""},
    {"body": b"x" * 3_000},
    {"body": b"x" * 4_096, "headers": b"{}"},
    {"body": b"x" * 4_097, "headers": b"{}", "keeps_body": True},
    {"body": b"x" * 4_097},
    {"if_exists": "reject"},
    {"if_exists": "replace", "delay_ms": 3},
    {"most_pending": 3},
]


def job(job_id: str, life: dict[str, Any]) -> NewJob:
    return NewJob(**{"id": job_id, "topic": "t", "body": b'"body"', "ttr_ms": 1_000, **life})


async def live(twins: Twins, life: dict[str, Any], worker: str) -> None:
    """A job alone, several of its kind, and one among others; popped, back again, popped again, finished."""
    await twins.both(lambda pool: pool.add([job("alone", life)]))
    await twins.both(lambda pool: pool.add([job(f"many{n}", life) for n in range(3)]))
    await twins.both(lambda pool: pool.add([job("first", {}), job("mixed", life), job("last", {"delay_ms": 5})]))
    topics = ["t", life.get("topic", "t")]
    for _ in range(3):
        await twins.check()
        twins.clock.advance(90_000_001)
        await twins.both(due_all)
        await twins.check()
        popped: list[Job] = (await twins.both(lambda pool: pool.pop(topics, 5, worker=worker))).jobs
        await twins.check()
        ends = [(each.id, each.lease if n % 2 else None) for n, each in enumerate(popped[:3])]
        await twins.both(lambda pool, ends=ends: pool.finish(ends))  # type: ignore[misc]
    await twins.check()
    await check_books(twins.pool.redis, twins.pool)


async def test_a_whole_life_is_the_same_on_both_paths(
    subtests: pytest.Subtests, redis: Redis, redis_server: RedisServer, clock: HeldClock
) -> None:
    for life, worker in itertools.product(LIVES, ("", "w")):
        with subtests.test(life=life, worker=worker):
            async with both_paths(redis, redis_server, clock) as twins:
                await live(twins, life, worker)


def with_block(raw: bytes, block: bytes) -> bytes:
    topic_end = raw[1] + raw[5]
    return raw[:2] + bytes([raw[2] | 0x10]) + raw[3:topic_end] + block + raw[topic_end:]


def with_byte(place: int, value: int) -> Callable[[bytes], bytes]:
    return lambda raw: raw[:place] + bytes([value]) + raw[place + 1 :]


def with_bits(place: int, bits: int) -> Callable[[bytes], bytes]:
    return lambda raw: raw[:place] + bytes([raw[place] ^ bits]) + raw[place + 1 :]


ODD: dict[str, Callable[[bytes], bytes]] = {
    **{f"byte {place} is {value}": with_byte(place, value) for place in (0, 1, 5) for value in (0, 2, 33, 35, 48, 255)},
    **{f"flag {bits}": with_bits(2, bits) for bits in (8, 32, 64, 128)},
    **{f"priority {value}": with_byte(3, value) for value in (9, 10, 0x24)},
    "bucket 1": with_byte(4, 1),
    "the last number": lambda raw: raw[:30] + bytes([255] * 4) + raw[34:],
    "cut short": lambda raw: raw[:33],
    "cut in its topic": lambda raw: raw[: raw[1]],
    "cut before its block": lambda raw: with_block(raw, b"")[: raw[1] + raw[5]],
    "cut in its block's length": lambda raw: with_block(raw, b"\0")[: raw[1] + raw[5] + 1],
    "cut in a field": lambda raw: with_block(raw, b"\0\x05\x02\0\x04\0\0")[: raw[1] + raw[5] + 7],
    "never delivered": lambda raw: raw[:36] + bytes(3) + raw[39:] if raw[1] == 47 else raw,
    **{
        f"block {block.hex()}": lambda raw, block=block: with_block(raw, block)  # type: ignore[misc]
        for block in (
            b"\0\0",
            b"\0\x07\x04\0\x04\0\0\x03\xe8",  # another ttr of its own
            b"\0\x05\x04\0\x02\0\0",
            b"\0\x07\x02\0\x04\0\0\0\x64",  # a retention
            b"\0\x05\x02\0\x02\0\x64",  # and damaged ones
            b"\0\x08\x02\0\x05\0\0\0\0\x64",
            b"\0\x05\x02\0\x04\0\0\0\x64",
            b"\0\x03\x03\0\0",  # no step
            b"\0\x05\x03\0\x02\0\0",
            b"\0\x09\x03\0\x06\0\0\0\0\0\x05",
            b"\0\x04\x63\0\x01x",  # a tag of a later version
            b"\0\x04\x63\0\x09x",
            b"\0\x02\x63\0",
            b"\xff\xff\x63\0",
            b"\0\x09\x01\0\x06\0\0\0\0\0\x05",  # a ttl
            b"\0\x0b\x63\0\x01x\x02\0\x04\0\0\0\x64",
        )
    },
}


async def live_oddly(twins: Twins, odd: Callable[[bytes], bytes]) -> None:
    """Whatever a record holds when due, pop and finish read it; next to it is one of its kind, unspoilt."""

    async def spoil(pool: Pool) -> None:
        raw = await pool.redis.read("GET", pool.keys[0].job("odd"))
        await pool.redis.read("SET", pool.keys[0].job("odd"), odd(raw))

    for stage in ("delayed", "ready", "reserved"):
        for each in (twins.pool, twins.twin):
            await each.redis.read("DEL", *(await each.redis.read("KEYS", each.keys[0].tag + "[^me]*")), "x")
        await twins.both(lambda pool: pool.add([job("even", {"delay_ms": 5}), job("odd", {"delay_ms": 5})]))
        if stage == "delayed":
            await twins.both(spoil)
        twins.clock.advance(6)
        await twins.both(due_all)
        if stage == "ready":
            await twins.both(spoil)
        await twins.check()
        await twins.both(popped_as_raw)
        if stage == "reserved":
            await twins.both(spoil)
        await twins.check()
        await twins.both(lambda pool: pool.finish([("even", None), ("odd", None)]))
        await twins.check()


async def test_an_odd_record_comes_to_the_same_on_both_paths(
    subtests: pytest.Subtests, redis: Redis, redis_server: RedisServer, clock: HeldClock
) -> None:
    for name, odd in ODD.items():
        with subtests.test(odd=name):
            async with both_paths(redis, redis_server, clock) as twins:
                await live_oddly(twins, odd)


async def popped_as_raw(pool: Pool) -> list[Any]:
    """The script's reply: a record may be too odd for Python."""
    reply: list[Any] = await pool.call(
        "pop", 0, ["t"], now=pool.clock.now(), bucket=0, want=9, room=8 << 20, always=1, ttr="", workers=b"\0\x09\0\0"
    )
    return reply


@pytest.mark.parametrize("stage", ["delayed", "ready", "reserved"])
async def test_a_record_that_is_no_string_is_set_aside_on_both_paths(twins: Twins, stage: str) -> None:
    async def spoil(pool: Pool) -> None:
        await pool.redis.read("DEL", pool.keys[0].job("odd"))
        await pool.redis.read("RPUSH", pool.keys[0].job("odd"), "not ours")

    await twins.both(lambda pool: pool.add([job("odd", {"delay_ms": 5}), job("even", {"delay_ms": 5})]))
    for at in ("delayed", "ready", "reserved"):
        if at == stage:
            await twins.both(spoil)
        if at == "delayed":
            twins.clock.advance(6)
            await twins.both(due_all)
        elif at == "ready":
            await twins.both(popped_as_raw)
    answers = await twins.both(lambda pool: pool.finish([("odd", None), ("even", None)]))
    assert [answer[0] for answer in answers[:1]] == ["NOT_FOUND"]
    assert answers[1] == "finished"
    await twins.check()
    assert await twins.pool.redis.read("HEXISTS", twins.pool.keys[0].aside, "odd") == 1


async def test_a_kind_is_told_by_its_topic_list_and_number_too(twins: Twins) -> None:
    """Entries in a wrong list, with an old number, or twice."""
    await twins.both(lambda pool: pool.add([job("a", {}), job("b", {}), job("c", {"topic": "u"})]))

    async def mix(pool: Pool) -> None:
        ready, (entry,) = pool.keys[0].ready, await pool.redis.read("LRANGE", pool.keys[0].ready(4, "u"), 0, -1)
        number = int(entry.split(b":")[0])
        await pool.redis.read("LPUSH", ready(4, "t"), entry, f"{number - 1}:a", f"{number + 1}:b", entry)

    await twins.both(mix)
    popped = await twins.both(lambda pool: pool.pop(["t"], 9))
    assert [each.id for each in popped.jobs] == ["c", "a", "b"]
    await twins.check()


async def test_jobs_that_differ_in_nothing_but_their_topic_are_counted_by_it(twins: Twins) -> None:
    await twins.both(lambda pool: pool.add([job("a", {"delay_ms": 5}), job("b", {"delay_ms": 5, "topic": "u"})]))
    twins.clock.advance(6)
    await twins.both(due_all)
    await twins.check()
    await twins.both(lambda pool: pool.pop(["t", "u"], 2))
    await twins.check()
    await twins.both(lambda pool: pool.finish([("a", None), ("b", None)]))
    await twins.check()
    await check_books(twins.pool.redis, twins.pool)


@pytest.mark.parametrize("number", [1, 7, 40])
async def test_schedules_among_due_jobs_change_nothing_for_these(twins: Twins, number: int) -> None:
    """Plain jobs and others, with schedules before, between and behind them, in each bucket."""
    now_ms = twins.clock.now_us // 1000
    scheduled = {each: Scheduled(each, twins.clock) for each in (twins.pool, twins.twin)}
    for n in range(number):
        lives = [{"delay_ms": 3 + n}, LIVES[n % len(LIVES)], {"delay_ms": 3 + n, "ttl_ms": 1}]
        await twins.both(lambda pool, n=n, lives=lives: pool.add([job(f"{n} {m}", x) for m, x in enumerate(lives)]))  # type: ignore[misc]
        await twins.both(lambda pool, n=n: scheduled[pool].define(f"s{n}", 2 + n % 5))  # type: ignore[misc]
        await twins.both(lambda pool, n=n: scheduled[pool].define(f"later{n}", 60_000))  # type: ignore[misc]
    await twins.check()
    twins.clock.advance(100)
    replies = await twins.both(due_all)
    assert sorted(name for reply in replies for name in reply[2]) == sorted(b"s%d" % n for n in range(number))
    await twins.check()
    entries = [await scheduled[twins.pool].entry(f"s{n}") for n in range(number)]
    assert entries == [now_ms + 100 + 1_000] * number
    await check_books(twins.pool.redis, twins.pool)


async def test_a_pop_that_looks_at_plain_jobs_and_takes_none_changes_nothing(twins: Twins) -> None:
    await twins.both(lambda pool: pool.add([job("a", {}), job("b", {})]))

    async def spoil(pool: Pool) -> None:
        entries = await pool.redis.read("LRANGE", pool.keys[0].ready(4, "t"), 0, -1)
        await pool.redis.read("DEL", pool.keys[0].ready(4, "t"))
        await pool.redis.read("RPUSH", pool.keys[0].ready(4, "t"), *(b"1" + entry for entry in entries))

    async def without_room(pool: Pool) -> Any:
        return await pool.call(
            "pop", 0, ["t"], now=pool.clock.now(), bucket=0, want=9, room=5, always=0, ttr="", workers=b"\0\x09\0\0"
        )

    assert await twins.both(without_room) == [2, 0, -1]
    await twins.check()
    await twins.both(spoil)
    assert (await twins.both(lambda pool: pool.pop(["t"], 9))).jobs == []
    await twins.check()


@pytest.mark.parametrize("ttrs", [(10_000, 1_000), (1_000, 10_000), (4_000, 10_000), (10_000, 4_000)])
@pytest.mark.parametrize("worn", [(), (0,), (1,)], ids=str)
async def test_the_earliest_lease_of_a_pop_sets_the_alarm(
    twins: Twins, ttrs: tuple[int, int], worn: tuple[int, ...]
) -> None:
    """The alarm of its bucket, if it ends soon and before all entries there; also for jobs that were delivered
    before."""
    await twins.both(lambda pool: pool.add([job(f"{n}", {"ttr_ms": ttr}) for n, ttr in enumerate(ttrs)]))
    for n in worn:
        await twins.both(lambda pool: pool.pop(["t"], 2))
        await twins.both(lambda pool, n=n: pool.finish([(f"{1 - n}", None)]))  # type: ignore[misc]
        await twins.both(lambda pool, n=n: released(pool, f"{n}"))  # type: ignore[misc]
        await twins.both(lambda pool, n=n: pool.add([job(f"{1 - n} anew", {"ttr_ms": ttrs[1 - n]})]))  # type: ignore[misc]
        twins.clock.advance(4)
        await twins.both(due_all)

    async def alone_in_the_bucket(pool: Pool) -> None:
        await pool.redis.read("DEL", pool.keys[0].bucket(0))
        await pool.redis.read("ZADD", pool.keys[0].bucket(0), twins.clock.now_us // 1000 + 2_000, "other")

    await twins.both(alone_in_the_bucket)
    await twins.both(twins.messages)
    await twins.both(popped_as_raw)
    assert await twins.both(twins.messages) == (["due 0", "the end"] if min(ttrs) < 2_000 else ["the end"])


@pytest.mark.parametrize("passed_ms", [9_999, 10_000, 10_001])
async def test_a_topic_is_marked_as_used_every_ten_seconds_on_both_paths(twins: Twins, passed_ms: int) -> None:
    await twins.both(lambda pool: pool.add([job("a", {}), job("b", {"delay_ms": 5, "topic": "u"})]))
    twins.clock.advance(passed_ms)
    await twins.both(lambda pool: pool.add([job("c", {})]))
    marks = await twins.both(lambda pool: pool.redis.read("ZRANGE", pool.keys[0].topics, 0, -1, "WITHSCORES"))
    assert int(marks[-1]) - int(marks[1]) == (passed_ms if passed_ms > 10_000 else 0)
    await twins.check()


@pytest.mark.parametrize("index", ["bucket", "topics", "counts", "due", "ready"])
async def test_an_add_sets_aside_an_index_of_a_wrong_type_on_both_paths(twins: Twins, index: str) -> None:
    def key(pool: Pool) -> str:
        keys, turn = pool.keys[0], twins.clock.now_us % pool.buckets  # of a call with many arguments
        indexes = {"bucket": keys.bucket(turn), "topics": keys.topics, "counts": keys.counts("t"), "due": keys.due("t")}
        return {**indexes, "ready": keys.ready(4, "t")}[index]

    async def spoil(pool: Pool) -> None:
        await pool.redis.read("SET", key(pool), "not ours")

    async def take_aside(pool: Pool) -> list[Any]:
        aside = await pool.redis.read("HGETALL", pool.keys[0].aside)
        await pool.redis.read("DEL", pool.keys[0].aside)
        assert aside[0].decode() == key(pool)
        return aside[1:]  # type: ignore[no-any-return]

    await twins.both(spoil)
    await twins.both(lambda pool: pool.add([job("a", {}), job("b", {"delay_ms": 5})]))
    assert len(await twins.both(take_aside)) == 1
    await twins.check()


class Randomly:
    """Random steps."""

    def __init__(self, twins: Twins, seed: int) -> None:
        self.twins = twins
        self.random = random.Random(seed)
        self.leases: list[Job] = []

    def jobs(self) -> list[NewJob]:
        choose = self.random.choice
        ids = self.random.sample(range(60), choose([1, 1, 2, 12]))
        lives = [choose(LIVES) if self.random.random() < 0.5 else {"delay_ms": 5} for _ in ids]
        return [
            job(f"j{each}", {"if_exists": choose(["keep", "renew", "replace", "later", "sooner"]), **life})
            for each, life in zip(ids, lives, strict=True)
        ]

    async def step(self) -> None:
        both, choose = self.twins.both, self.random.choice
        jobs, count, worker = self.jobs(), choose([1, 3, 20]), choose(["", "", "a"])
        ttr, some = choose([None, None, 0, 700]), self.random.sample(self.leases, min(len(self.leases), 3))
        ends = [(each.id, choose([each.lease, None, 7])) for each in some]
        match choose(["add", "add", "pop", "pop", "finish", "unpop", "release", "delete", "due", "due", "wait"]):
            case "add":
                await both(lambda pool: pool.add(jobs))
            case "pop":
                popped = await both(lambda pool: pool.pop(["t", "u"], count, ttr_ms=ttr, worker=worker))
                self.leases = [*self.leases, *popped.jobs][-30:]
            case "finish":
                await both(lambda pool: pool.finish(list(dict(ends).items())))
            case "unpop":
                await both(lambda pool: pool.unpop(list({each.id: each for each in some}.values())))
            case "release":
                how: dict[str, Any] = choose([{"delay_ms": 3}, {"ladder_ms": (0, 3)}, {"ladder_ms": (700, 3_000)}])
                for each in some:
                    await both(lambda pool, each=each: released(pool, each.id, each.lease, **how))  # type: ignore[misc]
            case "delete":
                await both(lambda pool: pool.delete([each.id for each in jobs]))
            case "due":
                await both(tick_all)
            case "wait":
                self.twins.clock.now_us += choose([1, 999, 5_000, 700_000, 3_000_000])


async def released(pool: Pool, job_id: str, lease: int | None = None, **how: Any) -> Any:
    try:
        return await pool.release(job_id, lease, **(how or {"delay_ms": 3}))
    except JobQueueError as error:
        return error


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_done_is_the_same_on_both_paths(twins: Twins, seed: int) -> None:
    randomly = Randomly(twins, seed)
    for step in range(STEPS):
        await randomly.step()
        if step % 8 == 0:
            await twins.check()
    await twins.check()


class Anyhow:
    """Random new jobs, with all that a record may hold at the edges of what it may."""

    def __init__(self, now_ms: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = now_ms

    def name(self, most: int) -> str:
        return "".join(self.random.choices(NAME_CHARACTERS, k=self.random.choice([1, 2, 2, 9, most])))

    def field(self, values: Sequence[Any], *rare: Any) -> Any:
        return self.random.choice(rare if rare and self.random.random() < 0.2 else values)

    def time(self) -> dict[str, Any]:
        day, often = 86_400_000, self.random.randrange(-3, 4)
        delays = [0, 1, 5, 59_999, day - 1, day, day + 1, self.random.randrange(30 * day), 3_650 * day, (1 << 47)]
        times = [1, self.now_ms + often, self.now_ms + day + often, self.now_ms - day, (1 << 48) - 1]
        return self.random.choice([{"delay_ms": self.random.choice(delays)}, {"due_ms": self.random.choice(times)}])

    def kind(self) -> dict[str, Any]:
        field, number = self.field, self.random.randrange
        return {
            "topic": field(["t", "u:1", "4:t", "%3A"], self.name(200), "ü" * 100),
            "ttr_ms": field([1_000], 0, 1, 86_400_000, number(1 << 32)),
            "priority": field([4], *range(10)),
            "tries": field([0], 1, 65_535),
            "ttl_ms": field([None], 1, number(1 << 47)),
            "retention_ms": field([0, 3_600_000, 172_800_000], 1, (1 << 32) - 1),
            "backoff_ms": field([()], (1,), (0, (1 << 47) - 1) * 8),
            "headers": field([b""], b"{}", self.random.randbytes(600)),
            "tags": field([b""], b"[]"),
            "note": field([b""], b"n", self.random.randbytes(64)),
            "keeps_body": self.random.random() < 0.1,
            "if_exists": field(["keep", "reject"], "renew", "replace", "later", "sooner"),
            "most_pending": field([0], 0, 0, 3),
        }

    def jobs(self) -> list[NewJob]:
        kinds, times = [self.kind() for _ in range(self.field([1, 1, 3]))], [self.time(), self.time()]
        bodies = [b"", b"1", self.random.randbytes(self.field([9, 300], 9_000))]
        ids = {self.field([self.name(200), f"j{self.random.randrange(99)}"]) for _ in range(self.field([1, 2, 40]))}
        return [
            NewJob(each, body=self.random.choice(bodies), **self.random.choice(kinds), **self.random.choice(times))
            for each in sorted(ids)
        ]


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_is_added_is_the_same_on_both_paths(twins: Twins, seed: int) -> None:
    chance = Anyhow(twins.clock.now_us // 1000, seed)
    for turn in range(100):
        jobs, gone = chance.jobs(), chance.field([False], True)
        await twins.both(lambda pool, jobs=jobs: pool.add(jobs))  # type: ignore[misc]
        if gone:  # what was there is known, or the key of another program
            await twins.both(lambda pool, jobs=jobs: pool.delete([each.id for each in jobs[::2]]))  # type: ignore[misc]
            for pool in (twins.pool, twins.twin):
                await pool.redis.read("DEL", pool.keys[0].job(jobs[0].id))
                await pool.redis.read("RPUSH", pool.keys[0].job(jobs[0].id), "not ours")
            await twins.both(lambda pool, jobs=jobs: pool.add(jobs))  # type: ignore[misc]
        twins.clock.now_us += chance.field([1, 999, 1_000], 11_000_000)
        chance.now_ms = twins.clock.now_us // 1000
        if turn % 5 == 0:
            await twins.check()
    await twins.check()


@pytest.fixture
def no_complete_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that takes the complete path raises an error."""
    begin = re.compile(r"^local function complete_path\(.*\)\n", re.M)
    for name in FAST_PATHS:
        text, changes = begin.subn(r"\g<0>error()\n", SCRIPTS[name].text)
        assert changes == 1
        monkeypatch.setitem(SCRIPTS, name, replace(SCRIPTS[name], text=text))


@pytest.mark.usefixtures("no_complete_path")
async def test_simple_jobs_do_take_the_fast_path(twins: Twins) -> None:
    """A fast path that nobody took would pass the other tests."""
    pool = twins.pool
    lives: list[dict[str, Any]] = [{}, {"retention_ms": 0}, {"backoff_ms": (5,), "headers": b"{}"}, {"delay_ms": 5}]
    lives += [{"delay_ms": 90_000_000, "ttl_ms": 5}, {"tags": b"[]", "priority": 9}, {"due_ms": 5}]
    lives += [{"note": b"n", "retention_ms": 0}]
    await pool.add([job(f"other {number}", {**life, "topic": "u"}) for number, life in enumerate(lives)])
    for number, life in enumerate(lives):
        (added,) = await pool.add([job(f"{number}", life)])
        assert not isinstance(added, JobQueueError)
    twins.clock.advance(6)
    await tick_all(pool)
    popped = [*(await pool.pop(["t"], 3)).jobs, *(await pool.pop(["t"], 9)).jobs]
    assert len(popped) == len(lives) - 1
    assert await pool.finish([(each.id, each.lease) for each in popped]) == ["finished"] * len(popped)
    await pool.add([job("x", {}), job("y", {})])
    assert [each.id for each in (await pool.pop(["t"], 9, worker="w")).jobs] == ["x", "y"]
    assert await pool.finish([("x", None), ("y", None)]) == ["finished"] * 2


@pytest.mark.usefixtures("no_complete_path")
async def test_a_job_that_was_due_a_day_ahead_takes_the_fast_path_to_its_end(twins: Twins) -> None:
    pool = twins.pool
    await pool.add([job("a", {"delay_ms": 90_000_000})])
    twins.clock.advance(90_000_001)
    await tick_all(pool)
    assert [each.id for each in (await pool.pop(["t"], 9)).jobs] == ["a"]
    assert await pool.finish([("a", None)]) == ["finished"]


async def test_each_path_writes_in_the_order_that_leaves_at_most_an_index_entry_too_many(
    redis: Redis, redis_server: RedisServer, clock: HeldClock
) -> None:
    """New index entries, counts, records, and only then the removal of old entries; then the bell."""
    for path in (redis, CompletePath(redis_server.url)):
        await redis.read("FLUSHALL")
        pool = await Pool.open(path, clock=clock)
        with Written(redis_server.url) as written:
            await pool.add([NewJob(each, "t", b"1", delay_ms=1_000, ttr_ms=9_000) for each in "ab"])
            assert written.names() == ["ZADD", "HINCRBY", "MSET", "SPUBLISH"]
            clock.advance(1_001)
            await tick_all(pool)
            assert written.names() == ["RPUSH", "HINCRBY", "HDEL", "SETRANGE", "ZREM", "SPUBLISH"]
            jobs = (await pool.pop(["t"], 2)).jobs
            assert written.names() == ["ZADD", "HINCRBY", "UNLINK", "MSET", "SPUBLISH", "LPOP"]
            await pool.finish([(job.id, job.lease) for job in jobs])
            assert written.names() == ["HINCRBY", "SET", "ZREM"]
        await pool.close()
        await path.close() if path is not redis else None
