"""buckets.events.switch: on, off, what becomes of the stream, and a namespace that was emptied."""

from __future__ import annotations

from typing import Any

import pytest

from buckets.errors import NoMeta, Unfit
from buckets.events.switch import GROUP, read_events, stream_key, switch_off, switch_on
from buckets.job import NewJob
from buckets.namespace import Switch, numbers_of, read_meta
from buckets.pool.codec import Added
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.shards import Shards
from tests.buckets.instances import Instance
from tests.kit.waiting import until

ON = Switch(1_000_000)


async def tell(pool: Shards, entries: int, shard: int = 0) -> list[bytes]:
    """Entries come into the stream of a shard; their ids."""
    return [await pool.redis.read("XADD", stream_key(pool, shard), "*", "m", "x") for _ in range(entries)]


async def read_group(pool: Shards, count: int) -> list[bytes]:
    """The group is given the next entries; their ids."""
    key = stream_key(pool, 0)
    replies = await pool.redis.read("XREADGROUP", "GROUP", GROUP, "r", "COUNT", count, "STREAMS", key, ">")
    return [entry[0] for entry in replies[0][1]] if replies else []


async def test_events_are_off_where_nobody_switched_them_on(pool: Pool) -> None:
    assert await read_events(pool, 0) == (None, "", None)


async def test_switching_on_makes_the_stream_with_its_group_and_says_so_in_the_settings(
    redis: Redis, pool: Pool
) -> None:
    word = await switch_on(pool, 0, Switch(5_000))
    on = await read_events(pool, 0)
    assert (on.switch, on.word) == ((5_000, False), word)
    assert on.stream and on.stream[:1] == (0,) and on.stream[2:] == (0, 0, "0-0") and on.stream.bytes > 0
    assert await read_meta(redis, pool.keys[0]) == {
        **{"format": "2", "slices": "3600000", "shards": "1", "buckets": "8", "hash": "crc32"},
        **{"events": "5000", "stream": word},
    }


async def test_what_was_told_before_the_group_began_to_read_is_behind_then_pending_then_gone(pool: Pool) -> None:
    await switch_on(pool, 0, ON)
    ids = await tell(pool, 5)
    given = await read_group(pool, 3)
    stream = (await read_events(pool, 0)).stream
    assert stream and stream._replace(bytes=0) == (5, 0, 2, 3, ids[2].decode())
    await pool.redis.read("XACK", stream_key(pool, 0), GROUP, *given)
    stream = (await read_events(pool, 0)).stream
    assert stream and stream._replace(bytes=0) == (5, 0, 2, 0, ids[2].decode())


async def test_entries_that_were_cut_off_unread_are_not_behind(pool: Pool) -> None:
    await switch_on(pool, 0, ON)
    await tell(pool, 9)
    await read_group(pool, 2)
    await pool.redis.read("XTRIM", stream_key(pool, 0), "MAXLEN", 4)
    stream = (await read_events(pool, 0)).stream
    assert stream and (stream.entries, stream.behind) == (4, 4)
    await read_group(pool, 3)
    stream = (await read_events(pool, 0)).stream
    assert stream and (stream.entries, stream.behind, stream.pending) == (4, 1, 5)  # two of the five are cut off


async def test_switching_on_again_with_other_bounds_keeps_the_stream_and_its_word(pool: Pool) -> None:
    word = await switch_on(pool, 0, ON)
    ids = await tell(pool, 2)
    await read_group(pool, 1)
    assert await switch_on(pool, 0, Switch(1_000, touches=True)) == word
    on = await read_events(pool, 0)
    assert (on.switch, on.word) == ((1_000, True), word)
    assert on.stream and (on.stream.entries, on.stream.last) == (2, ids[0].decode())
    assert await switch_on(pool, 0, ON) == word
    assert (await read_events(pool, 0)).switch == ON  # without touches


async def test_off_keeps_what_was_told_and_on_again_goes_on_with_the_same_stream(redis: Redis, pool: Pool) -> None:
    before = await read_meta(redis, pool.keys[0])
    word = await switch_on(pool, 0, Switch(1_000, touches=True))
    await tell(pool, 2)
    assert await switch_off(pool, 0) == (False, 2)
    assert await switch_off(pool, 0) == (False, 2)
    assert await read_meta(redis, pool.keys[0]) == before
    off = await read_events(pool, 0)
    assert (off.switch, off.word) == (None, "") and off.stream and off.stream.behind == 2
    assert await switch_on(pool, 0, ON) == word


async def test_a_stream_is_emptied_only_when_all_in_it_is_acknowledged(redis: Redis, pool: Pool) -> None:
    word = await switch_on(pool, 0, ON)
    await tell(pool, 3)
    assert await switch_off(pool, 0, drop=True) == (False, 3)
    given = await read_group(pool, 3)
    assert await switch_off(pool, 0, drop=True) == (False, 3)
    await redis.read("XACK", stream_key(pool, 0), GROUP, *given)
    assert await switch_off(pool, 0, drop=True) == (True, 0)
    before = (await read_events(pool, 0)).stream
    assert before and before._replace(bytes=0, last="") == (0, 0, 0, 0, "")
    assert await switch_off(pool, 0, drop=True) == (True, 0)
    assert await switch_off(pool, 0) == (True, 0)
    assert await switch_on(pool, 0, ON) == word
    stream = (await read_events(pool, 0)).stream
    assert stream and stream.last == before.last


@pytest.mark.parametrize("entries", ["1e6", "-5", "many", ""])
async def test_a_damaged_switch_is_off_and_holds_up_no_move(redis: Redis, pool: Pool, entries: str) -> None:
    await switch_on(pool, 0, ON)
    await tell(pool, 1)
    await redis.read("HSET", pool.keys[0].meta, "events", entries)
    (added,) = await pool.add([NewJob("a", "t", b"1")])
    assert isinstance(added, Added)
    stream = (await read_events(pool, 0)).stream
    assert stream and stream.entries == 1


async def test_a_key_of_another_program_in_the_streams_place_is_set_aside(redis: Redis, pool: Pool) -> None:
    key = stream_key(pool, 0)
    await redis.read("SET", key, "theirs")
    assert await read_events(pool, 0) == (None, "", None)
    assert await switch_off(pool, 0, drop=True) == (True, 0)
    assert await redis.read("GET", key) == b"theirs"
    await switch_on(pool, 0, ON)
    assert (await read_events(pool, 0)).stream
    assert b"theirs" in await redis.read("HGET", pool.keys[0].aside, key)


async def test_a_stream_that_was_deleted_gets_a_new_word_although_the_settings_have_the_old_one(
    redis: Redis, pool: Pool
) -> None:
    word = await switch_on(pool, 0, ON)
    await redis.read("DEL", stream_key(pool, 0))
    await tell(pool, 1)  # as a script does
    fresh = await switch_on(pool, 0, ON)
    assert fresh != word
    stream = (await read_events(pool, 0)).stream
    assert stream and stream.behind == 1


async def test_no_shard_without_settings_is_switched(redis: Redis, pool: Pool) -> None:
    await redis.read("FLUSHALL")
    with pytest.raises(NoMeta):
        await switch_on(pool, 0, ON)
    assert await read_events(pool, 0) == (None, "", None)
    assert await redis.read("KEYS", "*") == []


META = {"format": "1", "shards": "2", "buckets": "8", "hash": "crc32"}


@pytest.mark.parametrize(
    "fields",
    [
        {"events": "1000", "stream": "0123abcd"},
        {"events": "1000000000", "touches": "1", "stream": "f"},
    ],
)
async def test_the_settings_may_have_the_switch(redis: Redis, fields: dict[str, str]) -> None:
    assert numbers_of({**META, **fields}) == (2, 8)
    await redis.read("HSET", "{jq:0}:meta", *(text for pair in ({**META, **fields}).items() for text in pair))
    shards = await Shards.open(redis)
    assert shards.switches == [(int(fields["events"]), "touches" in fields), None]


async def test_settings_with_any_other_switch_are_refused(subtests: pytest.Subtests, redis: Redis) -> None:
    cases: list[dict[str, str]] = [
        *({"events": value} for value in ("", "0", "999", "1000000001", "01000", "1e6", "-1000", "on", "1000 ")),
        *({"events": "1000", "touches": value} for value in ("", "0", "2", "true")),
        *({"events": "1000", "stream": value} for value in ("", "word", "A", "0" * 33)),
        {"events": "1000", "event": "1000"},
        {"Events": "1000"},
    ]
    for fields in cases:
        with subtests.test(fields=fields):
            assert numbers_of({**META, **fields}) is None
            await redis.read("DEL", "{jq:0}:meta")
            await redis.read("HSET", "{jq:0}:meta", *(text for pair in ({**META, **fields}).items() for text in pair))
            with pytest.raises(Unfit, match="another version or is damaged"):
                await Shards.open(redis)


@pytest.mark.parametrize("touches", [False, True])
async def test_a_namespace_that_was_emptied_tells_of_its_moves_again(redis: Redis, touches: bool) -> None:
    """In all shards, with a new stream in each; what the instance knows is what was switched while it ran."""
    pool = await Pool.open(redis, shards=4, buckets=2)
    instance = Instance(pool)
    other = Shards(redis, "jq", 4, 2)
    async with instance.running():
        await until(lambda: all(instance.held))
        words = [await switch_on(other, shard, Switch(7_000, touches)) for shard in range(4)]
        await until(lambda: pool.switches == [(7_000, touches)] * 4)
        await redis.read("FLUSHALL")

        async def on() -> bool:
            metas = [await read_meta(redis, keys) for keys in pool.keys]
            return all("events" in meta for meta in metas)

        await until(on)
        for shard in range(4):
            events = await read_events(pool, shard)
            assert events.switch == (7_000, touches) and events.word not in words
            assert events.stream and events.stream._replace(bytes=0) == (0, 0, 0, 0, "0-0")
            assert events.word == await switch_on(pool, shard, ON)
    await pool.close()


async def test_a_namespace_whose_events_were_switched_off_stays_silent_when_it_was_emptied(
    redis: Redis, live_pool: Pool
) -> None:
    await switch_on(live_pool, 0, ON)
    instance = Instance(live_pool)
    other = Shards(redis, "jq", 1, 8)
    async with instance.running():
        await until(lambda: all(instance.held))
        assert live_pool.switches == [ON]
        await switch_off(other, 0)
        await until(lambda: live_pool.switches == [None])
        await redis.read("FLUSHALL")

        async def founded() -> bool:
            return bool(await redis.read("EXISTS", live_pool.keys[0].meta))

        await until(founded)
        assert await read_events(live_pool, 0) == (None, "", None)


@pytest.mark.parametrize("first", ["a lock", "the list of members"])
async def test_settings_that_are_lost_alone_come_back_with_the_same_stream(
    redis: Redis, live_pool: Pool, first: str
) -> None:
    word = await switch_on(live_pool, 0, ON)
    await tell(live_pool, 2)
    instance = Instance(live_pool)
    await instance.tick()
    await redis.read("DEL", live_pool.keys[0].meta)
    if first == "a lock":
        assert not await instance.locks[0].tick()
    else:
        await instance.members.tick()
    events = await read_events(live_pool, 0)
    assert (events.switch, events.word) == (ON, word) and events.stream and events.stream.behind == 2


async def test_an_instance_without_timers_knows_the_switch_by_the_list_that_it_signs(
    redis: Redis, live_pool: Pool
) -> None:
    instance = Instance(live_pool)
    other: Any = Shards(redis, "jq", 1, 8)
    await switch_on(other, 0, ON)
    await instance.members.tick()
    await redis.read("FLUSHALL")
    await instance.members.tick()
    assert (await read_events(other, 0)).switch == ON


@pytest.mark.parametrize("shard", [0, 1])
async def test_a_namespace_that_another_instance_founded_again_tells_of_its_moves(redis: Redis, shard: int) -> None:
    """One that starts just then has never read that events were on."""
    pool = await Pool.open(redis, shards=2)
    instance = Instance(pool)
    words = [await switch_on(pool, each, Switch(7_000, touches=True)) for each in range(2)]
    await instance.tick()
    await redis.read("FLUSHALL")
    await Shards.open(redis, shards=2)
    assert (await read_events(pool, shard)).switch is None
    await instance.tick()
    events = await read_events(pool, shard)
    assert events.switch == (7_000, True) and events.stream and events.word not in words
    assert pool.switches == [(7_000, True)] * 2


@pytest.mark.parametrize("drop", [False, True])
async def test_events_that_were_switched_off_stay_off_whoever_looks(redis: Redis, live_pool: Pool, drop: bool) -> None:
    await switch_on(live_pool, 0, ON)
    instance, other = Instance(live_pool), Shards(redis, "jq", 1, 8)
    await instance.tick()
    await switch_off(other, 0, drop=drop)
    for _ in range(2):
        await instance.tick()
        assert (await read_events(live_pool, 0)).switch is None
    assert live_pool.switches == [None]


async def test_what_was_read_long_ago_switches_nothing_on(redis: Redis, live_pool: Pool) -> None:
    """Somebody may have deleted the stream since."""
    await switch_on(live_pool, 0, ON)
    instance, other = Instance(live_pool), Shards(redis, "jq", 1, 8)
    await instance.tick()
    await switch_off(other, 0, drop=True)
    await redis.read("DEL", stream_key(other, 0))
    live_pool.switches_read[0] -= 301
    await instance.tick()
    assert (await read_events(live_pool, 0)).switch is None


async def test_damaged_settings_stop_no_instance_that_knew_the_switch(redis: Redis, live_pool: Pool) -> None:
    await switch_on(live_pool, 0, ON)
    instance = Instance(live_pool)
    await instance.tick()
    await redis.read("FLUSHALL")
    await redis.read("SET", live_pool.keys[0].meta, "of another program")
    await instance.tick()
    assert all(instance.held)
