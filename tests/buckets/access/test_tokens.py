"""buckets.access: the newest record of a token is kept, and each change has a version and is announced."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial

import pytest

from buckets.access import Entry, Tokens
from buckets.clock import HeldClock
from buckets.errors import NoMeta
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.timers import members
from buckets.timers.members import Members
from buckets.waiting.notifier import Listener, Notifier
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


@pytest.fixture
def tokens(pool: Pool) -> Tokens:
    return Tokens(pool)


def entry(name: str, changed: int, **fields: object) -> Entry:
    return Entry(name, changed, json.dumps({"id": name, "changed": changed, **fields}).encode())


async def version(tokens: Tokens) -> int:
    return (await tokens.read()).version


async def test_what_was_written_is_read_with_a_version(tokens: Tokens, clock: HeldClock) -> None:
    assert await tokens.read() == (0, clock.now_us, {}, {})
    one = entry("aaaaaaaa", 1)
    assert await tokens.write([one])
    assert await tokens.read() == (clock.now_us, clock.now_us, {"aaaaaaaa": one.record}, {})


async def test_the_record_that_was_changed_last_stays_whoever_writes_last(tokens: Tokens) -> None:
    late, early = entry("aaaaaaaa", 2), entry("aaaaaaaa", 1)
    await tokens.write([late])
    before = await version(tokens)
    await tokens.write([early])
    await tokens.write([late])
    assert (await tokens.read()).records == {"aaaaaaaa": late.record}
    assert await version(tokens) == before


async def test_a_record_that_cannot_be_read_gives_way(redis: Redis, pool: Pool, tokens: Tokens) -> None:
    for spoilt in ("{", "[]", '{"changed":"x"}', "7"):
        await redis.read("HSET", pool.keys[0].tag + "tokens", "aaaaaaaa", spoilt)
        await tokens.write([entry("aaaaaaaa", 1)])
        assert json.loads((await tokens.read()).records["aaaaaaaa"])["changed"] == 1


async def test_the_version_only_grows_and_never_repeats(redis: Redis, pool: Pool, tokens: Tokens) -> None:
    versions = []
    for changed in range(1, 6):
        await tokens.write([entry("aaaaaaaa", changed)])
        versions.append(await version(tokens))
    assert versions == sorted(set(versions))
    pool.clock.advance(-60_000)  # type: ignore[attr-defined]  # the clock of Redis goes back
    await tokens.write([entry("aaaaaaaa", 6)])
    assert await version(tokens) > versions[-1]
    await redis.read("DEL", pool.keys[0].tag + "tokens")
    await tokens.write([entry("aaaaaaaa", 6)], least=versions[-1] + 10)
    assert await version(tokens) > versions[-1] + 10


async def test_a_writer_that_saw_another_version_writes_nothing(tokens: Tokens) -> None:
    seen = await version(tokens)
    assert await tokens.write([entry("aaaaaaaa", 1)], seen=seen)
    assert not await tokens.write([entry("bbbbbbbb", 1)], seen=seen)
    assert list((await tokens.read()).records) == ["aaaaaaaa"]


async def test_a_writer_s_own_scripts_do_not_stop_it_when_it_writes_many(tokens: Tokens) -> None:
    many = [entry(f"{number:08}", 1) for number in range(450)]
    assert await tokens.write(many, seen=0)
    assert len((await tokens.read()).records) == 450


async def test_a_dropped_record_takes_its_last_use_with_it_unless_it_was_changed_since(tokens: Tokens) -> None:
    await tokens.write([entry("aaaaaaaa", 1), entry("bbbbbbbb", 2)])
    await tokens.note_used({"aaaaaaaa": 60, "bbbbbbbb": 60})
    await tokens.write([Entry("aaaaaaaa", 1, b""), Entry("bbbbbbbb", 1, b"")])
    stored = await tokens.read()
    assert (list(stored.records), stored.used) == (["bbbbbbbb"], {"bbbbbbbb": 60})


async def test_the_latest_use_is_kept(tokens: Tokens) -> None:
    for minute in (120, 60, 180, 120):
        await tokens.note_used({"aaaaaaaa": minute})
    assert (await tokens.read()).used == {"aaaaaaaa": 180}
    assert await version(tokens) == 0


async def test_nothing_is_written_into_a_namespace_that_is_gone(redis: Redis, tokens: Tokens) -> None:
    await redis.read("FLUSHALL")
    with pytest.raises(NoMeta):
        await tokens.write([entry("aaaaaaaa", 1)])
    assert await redis.read("DBSIZE") == 0


async def test_a_change_is_announced_on_the_bell(pool: Pool, tokens: Tokens) -> None:
    heard: list[int] = []
    notifier = Notifier(pool)
    notifier.register(Listener(tokens=heard.append))
    listening = asyncio.create_task(notifier.run())
    await notifier.connected.wait()
    await tokens.write([entry("aaaaaaaa", 1)])
    await tokens.write([entry("aaaaaaaa", 1)])  # nothing new
    await tokens.write([entry("aaaaaaaa", 2)])
    await until(lambda: len(heard) == 2)
    assert heard[1] == await version(tokens) > heard[0]
    listening.cancel()


async def test_the_roll_tells_the_version_to_whoever_wants_it(redis: Redis, pool: Pool, tokens: Tokens) -> None:
    told: list[int] = []
    watching, other = Members(pool, Notifier(pool)), Members(pool, Notifier(pool))
    watching.on_version = lambda version, asked: told.append(version)
    await watching.tick()
    await tokens.write([entry("aaaaaaaa", 1)])
    await watching.tick()
    await other.tick()
    assert told == [0, await version(tokens)]
    sign = partial(members.sign, pool, other.token, 450, 250)
    assert ((await sign()).version, (await sign(versioned=True)).version) == (0, told[1])
    await redis.read("SET", pool.keys[0].tag + "tokens", "of another program")
    assert (await sign(versioned=True)).version == 0


async def test_the_time_of_redis_is_that_of_the_roll(
    redis: Redis, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_s = int((await redis.read("TIME"))[0])
    monkeypatch.setattr(time, "time", lambda: real_s - 5000)  # of a host whose clock is wrong
    members = Members(live_pool, Notifier(live_pool))
    assert abs(members.redis_s() - real_s) > 1000  # nothing is known yet
    await members.tick()
    assert -1 <= members.redis_s() - real_s < 60


async def test_the_time_of_a_held_clock_is_known_at_once(pool: Pool, clock: HeldClock) -> None:
    members = Members(pool, Notifier(pool))
    await members.tick()
    clock.advance(3_600_000)
    assert members.redis_s() == clock.now_us / 1e6


async def test_tokens_are_revoked_when_redis_is_full(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis)
    await Tokens(pool).write([entry("aaaaaaaa", 1)])
    await redis.read("CONFIG", "SET", "maxmemory", "1")
    await Tokens(pool).write([entry("aaaaaaaa", 2, revoked=1)])
    await Tokens(pool).note_used({"aaaaaaaa": 60})
    assert json.loads((await Tokens(pool).read()).records["aaaaaaaa"])["revoked"] == 1
    await redis.close()
