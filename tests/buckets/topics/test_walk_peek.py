"""buckets.topics.walk, peek.lua, peek_ready.lua: looking at the jobs of a topic, page by page."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import Unavailable
from buckets.job import LIVE, NewJob, State
from buckets.keys import shard_of
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Bin
from buckets.topics.walk import Bins, Page, Position, Walk
from tests.buckets.jobs import add, delete, finish, get, pop, pop_one
from tests.buckets.topics.walks import FAR_MS, fill, ids, peeked, peeked_ids, snapshot
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import tick_all

COUNTS = [1, 2, 3, 7, 39, 40, 41, 100, 1000]


@pytest.mark.parametrize("state", LIVE)
async def test_a_job_is_seen_in_its_state_and_in_no_other(pool: Pool, clock: HeldClock, state: State) -> None:
    await fill(pool, clock, 2)
    assert sorted(await peeked_ids(pool, state)) == ids(2, state)


async def test_without_a_state_all_live_jobs_are_seen_state_by_state(pool: Pool, clock: HeldClock) -> None:
    await fill(pool, clock, 2)
    jobs = await peeked(pool, count=3)
    assert sorted(job.id for job in jobs) == sorted(ids(2))
    assert [job.state for job in jobs] == [state for state in LIVE for _ in range(2)]


async def test_a_job_is_seen_with_all_that_it_has(pool: Pool, clock: HeldClock) -> None:
    await fill(pool, clock, 1)
    for job in await peeked(pool):
        assert job == await get(pool, job.id)


async def test_a_topic_without_jobs_and_tombstones_show_nothing(pool: Pool) -> None:
    assert await Walk(pool).peek("t") == Page()
    await add(pool, "a")
    await add(pool, "b")
    await pop_one(pool)
    await finish(pool, "a")
    await delete(pool, "b")
    assert await Walk(pool).peek("t") == Page()


@pytest.mark.parametrize("state", [None, *LIVE])
async def test_looking_changes_nothing(redis: Redis, pool: Pool, clock: HeldClock, state: State | None) -> None:
    await fill(pool, clock, 3)
    for word in ("delayed", "ready", "reserved", "dead"):
        await redis.read("SET", pool.keys[0].job(f"{word}:0000"), "from another program")
        await redis.read("DEL", pool.keys[0].job(f"{word}:0001"))
    before = await snapshot(redis)
    assert len(await peeked(pool, state, count=2)) == (1 if state else 4)
    assert await snapshot(redis) == before


async def test_delayed_jobs_come_by_their_due_time_over_all_buckets(subtests: pytest.Subtests, pool: Pool) -> None:
    delays = list(range(1, 131))
    random.Random(1).shuffle(delays)
    for delay in delays:  # one per call, each to the next bucket
        await add(pool, f"{delay:03}", delay_ms=delay * 1_000)
    for count in COUNTS:
        with subtests.test(count=count):
            found = await peeked_ids(pool, State.DELAYED, count=count)
            assert found == [f"{delay:03}" for delay in sorted(delays)]


@pytest.mark.parametrize("buckets", [1, 3])
async def test_jobs_of_one_millisecond_come_each_once_by_bucket_and_id(
    subtests: pytest.Subtests, redis: Redis, clock: HeldClock, buckets: int
) -> None:
    """Ids that sort differently as bytes and as letters (a, B, _), and one that is a prefix of another."""
    pool = await Pool.open(redis, buckets=buckets, clock=clock)
    names = [f"{first}{second}" for first in "aBAb_-.:/@#+=0z" for second in ("", "a", "B", "_", "-", "aa", "aB", "0")]
    random.Random(1).shuffle(names)
    for name in names:  # one per call, each to the next bucket
        await add(pool, name, delay_ms=1_000)
    for count in COUNTS:
        with subtests.test(count=count):
            jobs = await peeked(pool, State.DELAYED, count=count)
            in_order = sorted(jobs, key=lambda job: (job.bucket, job.id.encode()))
            assert [job.id for job in jobs] == [job.id for job in in_order]
            assert sorted(job.id for job in jobs) == sorted(names)
            assert {job.bucket for job in jobs} == set(range(buckets))


async def test_a_crowd_of_one_millisecond_hides_nobody_before_and_behind_it(
    subtests: pytest.Subtests, redis: Redis, pool: Pool
) -> None:
    crowd = [NewJob(f"{n:03}", "t", b"", delay_ms=5_000) for n in range(500)]
    await pool.add([*crowd, NewJob("first", "t", b"", delay_ms=4_999), NewJob("last", "t", b"", delay_ms=5_001)])
    for count in (1, 7, 100):
        with subtests.test(count=count):
            found = await peeked_ids(pool, State.DELAYED, count=count)
            assert (found[0], found[-1], len(found), len(set(found))) == ("first", "last", 502, 502)


async def test_reserved_jobs_come_by_the_end_of_their_leases(pool: Pool, clock: HeldClock) -> None:
    ttrs = list(range(1, 61))
    random.Random(1).shuffle(ttrs)
    await pool.add([NewJob(f"{ttr:02}", "t", b"", ttr_ms=ttr * 1_000) for ttr in ttrs])
    await pop(pool, count=60)
    for count in (1, 7, 1000):
        found = await peeked_ids(pool, State.RESERVED, count=count)
        assert found == [f"{ttr:02}" for ttr in sorted(ttrs)], count


async def test_dead_jobs_come_by_their_death(pool: Pool, clock: HeldClock) -> None:
    deaths = list(range(1, 61))
    random.Random(1).shuffle(deaths)
    await pool.add([NewJob(f"{death:02}", "t", b"", ttl_ms=death) for death in deaths])
    for _ in deaths:
        clock.advance(1)
        await tick_all(pool)
    for count in (1, 7, 1000):
        found = await peeked_ids(pool, State.DEAD, count=count)
        assert found == [f"{death:02}" for death in sorted(deaths)], count


async def test_ready_jobs_come_as_a_pop_gets_them(pool: Pool) -> None:
    await pool.add([NewJob(f"{n}", "t", b"", priority=n * 7 % 10) for n in range(100)])
    await pool.add([NewJob(f"more{n}", "t", b"") for n in range(505)])
    found = {count: await peeked_ids(pool, State.READY, count=count) for count in (1, 7, 249, 250, 251, 1000)}
    popped = [job.id for job in await pop(pool, count=1_000)]
    assert {count: ids for count, ids in found.items() if ids != popped} == {}


async def test_pages_of_every_size_give_each_job_of_all_states_and_shards_once(
    subtests: pytest.Subtests, redis: Redis, clock: HeldClock
) -> None:
    pool = await Pool.open(redis, "many", shards=3, buckets=2, clock=clock)
    await fill(pool, clock, 50)
    await fill(pool, clock, 20, "u", "other:")
    for count in COUNTS:
        with subtests.test(count=count):
            jobs = await peeked(pool, count=count)
            assert sorted(job.id for job in jobs) == sorted(ids(50))
            places = [(job.state, shard_of(job.id, 3)) for job in jobs]
            assert places == sorted(places)


@pytest.mark.parametrize("state", [None, *LIVE])
async def test_the_shards_one_by_one_give_what_all_together_do(
    redis: Redis, clock: HeldClock, state: State | None
) -> None:
    pool = await Pool.open(redis, "many", shards=3, buckets=2, clock=clock)
    await fill(pool, clock, 50)
    by_shard = [[job.id for job in await peeked(pool, state, shard=shard, count=7)] for shard in range(3)]
    assert all(shard_of(job_id, 3) == shard for shard, found in enumerate(by_shard) for job_id in found)
    assert sorted(job_id for found in by_shard for job_id in found) == sorted(
        ids(50) if state is None else ids(50, state)
    )


async def test_pages_between_the_jobs_of_other_topics_may_be_empty_but_each_is_bounded(
    redis: Redis, pool: Pool
) -> None:
    for n in range(10):
        await pool.add([NewJob(f"u{n}.{m}", "u", b"", delay_ms=1_000 + n) for m in range(1_000)])
    await add(pool, "a", delay_ms=1_005)
    await add(pool, "b", delay_ms=2_000)
    walk, position, pages = Walk(pool), None, list[list[str]]()
    while position or not pages:
        await redis.read("CONFIG", "RESETSTAT")
        page = await walk.peek("t", State.DELAYED, position)
        assert await scripts_run(redis) <= 50
        pages.append([job.id for job in page.jobs])
        position = page.next
    assert len(pages) > 1 and [job_id for page in pages for job_id in page] == ["a", "b"]


async def test_jobs_of_other_topics_and_states_in_the_same_indexes_are_passed_over(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    """A ready job with a ttl is in a bucket, too."""
    await add(pool, "ttl", ttl_ms=FAR_MS)
    await add(pool, "delayed", delay_ms=1)
    await add(pool, "of u", "u", ttl_ms=1)
    clock.advance(1)
    for bucket in range(pool.buckets):
        await redis.read("ZADD", pool.keys[0].bucket(bucket), 5, f"nobody{bucket}")
    await redis.read("ZADD", pool.keys[0].dead("t"), 5, "delayed", 6, "ttl", 7, "of u", 8, "nobody")
    assert [await peeked_ids(pool, state) for state in LIVE] == [["delayed"], ["ttl"], [], []]


async def test_stale_and_foreign_entries_of_a_ready_list_are_passed_over(redis: Redis, pool: Pool) -> None:
    await pool.add([NewJob(f"old{n}", "t", b"") for n in range(600)])
    await add(pool, "a")
    await pool.delete([f"old{n}" for n in range(600)])
    await redis.read("LPUSH", pool.keys[0].ready(4, "t"), "", "no number", "1:", ":a", "1:nobody", "99:a", b"\xff:\xfe")
    await add(pool, "b", priority=0)
    await add(pool, "b", priority=9, if_exists="replace")
    await add(pool, "c", priority=0)
    for count in (1, 10):
        assert await peeked_ids(pool, State.READY, count=count) == ["b", "a", "c"]


@pytest.mark.parametrize("state", LIVE)
async def test_entries_that_are_no_text_are_passed_over(
    redis: Redis, pool: Pool, clock: HeldClock, state: State
) -> None:
    """A page may end after one."""
    await fill(pool, clock, 1)
    keys = pool.keys[0]
    await redis.read("RPUSH", keys.ready(4, "t"), b"\xff\xfe", b"1:\xff")
    for key in (keys.dead("t"), *map(keys.bucket, range(pool.buckets))):
        await redis.read("ZADD", key, 5, b"\xff\xfe", 10**15, b"\xff")
    assert await peeked_ids(pool, state, count=1) == ids(1, state)


async def test_long_names_and_many_optional_fields_are_read_whole(pool: Pool, clock: HeldClock) -> None:
    """Header, topic and optional fields of a record exceed the part that scripts read first."""
    topic, job_id = "T" * 255, "i" * 254
    fields = {"headers": b'{"a":"' + b"h" * 8_000 + b'"}', "tags": b'["' + b"t" * 2_000 + b'"]'}
    await add(pool, job_id + "1", topic, delay_ms=1_000, backoff_ms=(1,) * 32, **fields)
    await add(pool, job_id + "2", topic, **fields)
    await add(pool, job_id + "3", topic, priority=9, **fields)
    await pop_one(pool, topic, worker="w" * 128)
    await add(pool, job_id + "4", topic, priority=9, **fields)
    await pool.bury((await pop_one(pool, topic)).id, reason="r" * 1_000)
    jobs = await peeked(pool, None, topic, count=1)
    assert [job.id[-1] for job in jobs] == ["1", "2", "3", "4"]
    assert jobs == [await get(pool, job.id) for job in jobs]


async def test_a_page_holds_as_many_bytes_as_it_has_room_for_and_one_job_always(pool: Pool) -> None:
    """The job that exceeds the room is the last."""
    await pool.add([NewJob(f"d{n}", "t", b"x" * 100_000, delay_ms=1_000 + n) for n in range(6)])
    await pool.add([NewJob(f"r{n}", "t", b"x" * 100_000) for n in range(6)])
    walk = Walk(pool)
    for state, first in ((State.DELAYED, "d"), (State.READY, "r")):
        pages, position = list[list[str]](), None
        while position or not pages:
            page = await walk.peek("t", state, position, room=150_000)
            pages.append([job.id for job in page.jobs])
            position = page.next
        assert [page for page in pages if page] == [[f"{first}{n}", f"{first}{n + 1}"] for n in (0, 2, 4)]
        exact = 2 * (34 + 1 + 100_000)  # header, topic, body
        assert len((await walk.peek("t", state, room=exact)).jobs) == 2
        assert len((await walk.peek("t", state, room=exact + 1)).jobs) == 3
        for room in (0, -5, 1):
            assert [job.id for job in (await walk.peek("t", state, room=room)).jobs] == [f"{first}0"]


async def scripts_run(redis: Redis) -> int:
    said = (await redis.read("INFO", "commandstats")).decode()
    return int(said.split("cmdstat_evalsha:calls=")[1].partition(",")[0])


@pytest.mark.parametrize("buckets", [1, 8, 64])
async def test_a_script_looks_at_80_entries_however_many_buckets_there_are(
    redis: Redis, clock: HeldClock, buckets: int
) -> None:
    pool = await Pool.open(redis, buckets=buckets, clock=clock)
    await pool.add([NewJob(f"{n}", "t", b"", delay_ms=n) for n in range(1, 1_201)])
    await add(pool, "behind", "u", delay_ms=1_201)
    await redis.read("CONFIG", "RESETSTAT")
    assert [job.id for job in await peeked(pool, State.DELAYED, "u")] == ["behind"]
    assert 15 <= await scripts_run(redis) <= 16
    assert len(await peeked(pool, State.DELAYED, count=1_000)) == 1_200


async def test_a_script_takes_up_to_80_dead_letters(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await pool.add([NewJob(f"{n}", "t", b"", ttl_ms=1) for n in range(1_200)])
    clock.advance(1)
    await tick_all(pool)
    await redis.read("CONFIG", "RESETSTAT")
    assert len(await peeked(pool, State.DEAD, count=1_000)) == 1_200
    assert 15 <= await scripts_run(redis) <= 16


# Beginning at a time, and ids that begin with a prefix.


async def seen(pool: Pool, state: State, count: int = 100, **sought: Any) -> list[str]:
    """The ids of all pages."""
    found, place = list[str](), None
    while True:
        page = await Walk(pool).peek("t", state, place, count=count, **sought)
        found += [job.id for job in page.jobs]
        place = page.next
        if place is None:
            return found


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("state", [State.DELAYED, State.RESERVED, State.DEAD])
async def test_a_walk_that_begins_at_a_time_sees_what_has_that_time_or_a_later_one(
    redis: Redis, clock: HeldClock, state: State, shards: int
) -> None:
    pool = await Pool.open(redis, shards=shards, clock=clock)
    for n in range(20):
        delay_ms = 1_000 * n + 1 if state is State.DELAYED else 0
        await add(pool, f"{n:02}", delay_ms=delay_ms, ttr_ms=FAR_MS if state is State.RESERVED else 1_000, tries=1)
        if state is not State.DELAYED:
            await pop_one(pool)
            clock.advance(1_000)
            await tick_all(pool)
    since_ms = (await get(pool, "07")).next
    for count in (1, 3, 100):
        for later_ms, first in ((0, 7), (1, 8), (10 * FAR_MS, 20)):
            found = await seen(pool, state, count, since_ms=since_ms + later_ms)
            assert sorted(found) == [f"{n:02}" for n in range(first, 20)], count


async def test_of_a_prefix_the_jobs_are_seen_whose_ids_begin_with_it(
    subtests: pytest.Subtests, pool: Pool, clock: HeldClock
) -> None:
    await fill(pool, clock, 12)
    for state, count in itertools.product(LIVE, (1, 100)):
        with subtests.test(state=state, count=count):
            assert sorted(await seen(pool, state, count, prefix=f"{state.word}:000")) == ids(10, state)
            assert await seen(pool, state, count, prefix=f"{state.word}:0011") == [f"{state.word}:0011"]
            assert await seen(pool, state, count, prefix=f"{state.word}.") == []


async def test_a_walk_over_few_delayed_jobs_passes_over_the_times_of_the_others(redis: Redis, pool: Pool) -> None:
    minute = 60_000
    for some in range(10):
        await pool.add([NewJob(f"{some}:{n}", "other", b"", delay_ms=minute * n) for n in range(1, 1_001)])
    for n in (3, 500, 501, 999, 10_000):  # one lies a week ahead, where the hour is known
        await add(pool, f"{n}", delay_ms=minute * n)
    await redis.read("CONFIG", "RESETSTAT")
    page = await Walk(pool).peek("t", State.DELAYED)
    assert ([job.id for job in page.jobs], page.next) == (["3", "500", "501", "999", "10000"], None)
    assert page.looked < 1_000
    assert await scripts_run(redis) < 15


async def test_a_walk_over_reserved_jobs_ends_behind_the_longest_lease(redis: Redis, pool: Pool) -> None:
    await add(pool, "a", ttr_ms=FAR_MS)
    await pop_one(pool)
    await pool.add([NewJob(f"{n}", "other", b"", delay_ms=50 * FAR_MS + n) for n in range(1_000)])
    await redis.read("CONFIG", "RESETSTAT")
    assert [job.id for job in await peeked(pool, State.RESERVED)] == ["a"]
    assert await scripts_run(redis) <= 3


async def test_however_many_look_one_script_at_a_time_is_run_for_their_pages(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pops wait behind what is with Redis already."""
    await pool.add([NewJob(f"{n:03}", "t", b"", delay_ms=60_000) for n in range(400)])
    running, most, call = 0, 0, pool.call

    async def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await call(*arguments, **more)
        finally:
            running -= 1

    monkeypatch.setattr(pool, "call", counted)
    walk = Walk(pool)
    pages = await asyncio.gather(*(walk.peek("t", State.DELAYED, count=400) for _ in range(5)))
    assert [len(page.jobs) for page in pages] == [400] * 5
    assert most == 1


async def test_who_looks_does_not_wait_in_line_for_a_server_that_does_not_answer(
    own_server: RedisServer,
) -> None:
    redis = Redis(own_server.url, timeout_s=1)
    walk = Walk(await Pool.open(redis))
    own_server.freeze()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    looks = await asyncio.gather(*(walk.peek("t") for _ in range(20)), return_exceptions=True)
    own_server.thaw()
    assert all(isinstance(each, Unavailable) for each in looks)
    assert loop.time() - begun < 10  # one after another they would take 20
    await redis.close()


def test_the_next_bin_and_the_last_are_found_among_minutes_and_hours(subtests: pytest.Subtests) -> None:
    for seed in range(20):
        with subtests.test(seed=seed):
            dice = random.Random(seed)
            hour, minute = 3_600_000, 60_000
            bins = {Bin(dice.randrange(20) * hour, hour) for _ in range(dice.randrange(6))}
            bins |= {Bin(dice.randrange(1200) * minute, minute) for _ in range(dice.randrange(30))}
            found = Bins([*bins])
            ends = [
                edge + aside
                for each in bins
                for edge in (each.begin, each.begin + each.width)
                for aside in (-0.5, 0, 0.5)
            ]
            for at in [-1.0, float("-inf"), float("inf"), *ends]:
                assert found.next(at) == min(
                    (each.begin for each in bins if each.begin + each.width > at), default=None
                )
                assert found.last(at) == max(
                    (each.begin + each.width for each in bins if each.begin <= at), default=None
                )


async def test_a_page_tells_how_many_entries_it_looked_at(pool: Pool, clock: HeldClock) -> None:
    await fill(pool, clock, 10)
    await fill(pool, clock, 10, "u", "u:")
    looked = {state: (await Walk(pool).peek("t", state)).looked for state in LIVE}
    assert looked == {State.DELAYED: 40, State.READY: 10, State.RESERVED: 40, State.DEAD: 10}


async def test_a_page_of_large_jobs_is_several_short_scripts(redis: Redis, pool: Pool) -> None:
    await pool.add([NewJob(f"{n:02}", "t", b"x" * 250_000, delay_ms=1_000 + n) for n in range(20)])
    assert len((await Walk(pool).peek("t", State.DELAYED)).jobs) == 20


# Changes between two pages.


async def test_the_entry_behind_which_a_page_begins_may_be_popped(pool: Pool) -> None:
    await pool.add([NewJob(f"{n}", "t", b"") for n in range(6)])
    walk = Walk(pool)
    page = await walk.peek("t", State.READY, count=3)
    await pop(pool, count=4)
    page = await walk.peek("t", State.READY, page.next)
    assert [job.id for job in page.jobs] == ["4", "5"]


async def test_an_entry_that_pops_moved_far_to_the_front_is_found_again(pool: Pool) -> None:
    """By more entries than one script examines, in a list that stays as long as before."""
    await pool.add([NewJob(f"{n}", "t", b"", ttr_ms=0) for n in range(4_800)])
    walk, position, seen = Walk(pool), None, 0
    while seen < 4_600:
        page = await walk.peek("t", State.READY, position, count=230)
        position, seen = page.next, seen + len(page.jobs)
    for _ in range(9):
        await pop(pool, count=500)
    await pool.add([NewJob(f"more{n}", "t", b"") for n in range(4_600)])
    page = await walk.peek("t", State.READY, position, count=2)
    assert [job.id for job in page.jobs] == ["4600", "4601"]
    await pop(pool, count=200)
    page = await walk.peek("t", State.READY, position, count=2)
    assert [job.id for job in page.jobs] == ["4700", "4701"]


async def test_a_few_jobs_given_back_to_the_front_let_nobody_be_seen_twice(pool: Pool) -> None:
    await pool.add([NewJob(f"{n:03}", "t", b"") for n in range(300)])
    popped = await pop(pool, count=100)
    first = await Walk(pool).peek("t", State.READY, count=50)
    await pool.unpop(popped)
    page = await Walk(pool).peek("t", State.READY, first.next, count=300)
    assert [job.id for job in (*first.jobs, *page.jobs)] == [f"{n:03}" for n in range(100, 300)]


async def test_a_list_that_was_emptied_and_begun_anew_is_seen_from_its_front(pool: Pool) -> None:
    await pool.add([NewJob(f"{n}", "t", b"") for n in range(50)])
    page = await Walk(pool).peek("t", State.READY, count=40)
    await pop(pool, count=50)
    await add(pool, "new")
    assert [job.id for job in (await Walk(pool).peek("t", State.READY, page.next)).jobs] == ["new"]


async def test_a_place_far_beyond_the_end_of_a_list_is_no_long_search(pool: Pool) -> None:
    await add(pool, "a")
    far = Position(2, 0, 4, "999999999999999", "1:nobody")
    assert [job.id for job in (await Walk(pool).peek("t", State.READY, far)).jobs] == ["a"]


async def test_jobs_given_back_to_the_front_hide_nobody(pool: Pool) -> None:
    """They shift the others away from the front: some of those are seen again."""
    await pool.add([NewJob(f"{n:04}", "t", b"") for n in range(900)])
    popped = await pop(pool, count=400)
    first = await Walk(pool).peek("t", State.READY, count=100)
    await pool.unpop(popped)
    seen = [job.id for job in first.jobs]
    position = first.next
    while position:
        page = await Walk(pool).peek("t", State.READY, position)
        seen += [job.id for job in page.jobs]
        position = page.next
    assert set(seen) >= {f"{n:04}" for n in range(400, 900)}


class Bustle:
    """Other jobs of the topic come and go, in every possible way, during a walk."""

    def __init__(self, pool: Pool, clock: HeldClock, seed: int) -> None:
        self._pool = pool
        self._clock = clock
        self._chance = random.Random(seed)
        self._next = 0
        self._turns = 80  # then it stops: otherwise a walk would never reach the end of the new jobs

    async def go_on(self) -> None:
        pool, chance = self._pool, self._chance
        self._turns -= 1
        if self._turns < 0:
            return
        new = []
        for _ in range(chance.randrange(6)):
            self._next += 1
            new.append(self._new(f"other:{self._next}"))
        await pool.add(new)
        self._clock.advance(chance.randrange(3))
        await tick_all(pool)
        popped = await pop(pool, "t", count=chance.choice([1, 2, 6]), ttr_ms=chance.choice([1, 5, 1_000]))
        for job in popped:
            await self._end(job.id, job.lease)

    def _new(self, job_id: str) -> NewJob:
        delay_ms, priority, ttl_ms = (self._chance.choice(some) for some in ([0, 0, 1, 500], [4, 4, 9], [0, 2]))
        return NewJob(job_id, "t", b"", delay_ms, priority=priority, ttl_ms=ttl_ms or None, retention_ms=0)

    async def _end(self, job_id: str, lease: int) -> None:
        pool = self._pool
        ways: list[Callable[[], Awaitable[object]]] = [
            lambda: pool.finish([(job_id, lease)]),
            lambda: pool.delete([job_id]),
            lambda: pool.release(job_id, delay_ms=self._chance.choice([0, 1, 300])),
            lambda: pool.bury(job_id),
            lambda: asyncio.sleep(0),
        ]
        await self._chance.choice(ways)()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("state", [State.DELAYED, State.RESERVED, State.DEAD])
async def test_a_job_that_stays_where_it_is_is_seen_once_whatever_the_others_do(
    pool: Pool, clock: HeldClock, state: State, seed: int
) -> None:
    await fill(pool, clock, 30)
    await pop(pool, count=30)  # the ready ones do not stay ready
    bustle = Bustle(pool, clock, seed)
    for _ in range(10):
        await bustle.go_on()
    jobs = await peeked(pool, state, count=1 + seed % 3, between=bustle.go_on)
    seen = Counter(job.id for job in jobs)
    assert [seen[job_id] for job_id in ids(30, state)] == [1] * 30


@pytest.mark.parametrize("seed", range(6))
async def test_a_ready_job_that_is_not_popped_is_seen_once_between_pops_from_the_front_and_pushes_at_the_back(
    pool: Pool, clock: HeldClock, seed: int
) -> None:
    await pool.add([NewJob(f"front{n}", "t", b"") for n in range(200)])
    await pool.add([NewJob(f"{n:03}", "t", b"", priority=4) for n in range(60)])
    await pool.add([NewJob(f"low{n}", "t", b"", priority=0) for n in range(20)])
    chance, left = random.Random(seed), 200

    async def bustle() -> None:
        nonlocal left
        popped = await pop(pool, count=min(chance.randrange(12), left))
        left -= len(popped)
        for job in popped:
            await pool.release(job.id, delay_ms=0) if chance.random() < 0.5 else await delete(pool, job.id)
        gone = [f"low{n}" for n in range(20) if chance.random() < 0.02]
        await pool.delete(gone)

    jobs = await peeked(pool, State.READY, count=1 + seed % 3, between=bustle)
    seen = Counter(job.id for job in jobs)
    assert [seen[f"{n:03}"] for n in range(60)] == [1] * 60


# Positions that come from outside.


async def test_a_position_that_cannot_be_is_recognised(subtests: pytest.Subtests, pool: Pool) -> None:
    cases: list[Position] = [
        Position(0, 0),
        Position(5, 0),
        Position(-1, 0),
        Position(1, 1),
        Position(1, -1),
        Position(1, 0, 8),
        Position(1, 0, -1),
        Position(2, 0, 11),
        Position(2, 0, -1),
        Position(2, 0, 4, "-1"),
        Position(2, 0, 4, "1.5"),
        Position(2, 0, 4, "9" * 16),
        *(Position(1, 0, 0, at) for at in ("nan", "x", ".", "1.2.3", "-", "1e", "1\n", "٣", "(1", "1 ")),
        Position(1, 0, 0, "1", "ü€"),
        Position(1, 0, begun=-1),
        Position(1, 0, begun=2**53),
    ]
    for position in cases:
        with subtests.test(position=position):
            assert not Walk(pool).has(position)


async def test_every_place_that_there_is_can_be_gone_on_from(
    subtests: pytest.Subtests, redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    await fill(pool, clock, 1)
    beyond = ("1.8e+30", "1.8000000000000001e+30", "inf")
    places = ("", "1", "-5", "1800000000000", "-inf", "0.5", *beyond)
    for state, at in itertools.product((State.DELAYED, State.DEAD), places):
        with subtests.test(state=state, at=at):
            position = Position(int(state), 0, 0, at, "x\x00ü")
            assert Walk(pool).has(position)
            assert len((await Walk(pool).peek("t", state, position)).jobs) == (at not in beyond)


async def test_a_bucket_with_times_of_all_kinds_is_walked_through(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, buckets=1, clock=clock)
    for n, score in enumerate(["-inf", "-1.5", "0.1", "1e300", "inf"]):
        await redis.read("ZADD", pool.keys[0].bucket(0), score, f"x{n}")
    await pool.add([NewJob(f"{n:02}", "t", b"", delay_ms=1_000) for n in range(45)])
    assert len(await peeked(pool, State.DELAYED, count=1)) == 45


@pytest.mark.parametrize("state", [State.DELAYED, State.RESERVED])
@pytest.mark.parametrize("span", [1, 5_000])
async def test_no_position_names_a_job_of_another_topic_and_none_is_missed_or_met_twice(
    redis: Redis, clock: HeldClock, state: State, span: int
) -> None:
    pool = await Pool.open(redis, shards=1, buckets=1, clock=clock)
    topics = ["t" if n % 4_500 in (0, 1, 4_499) else "other" for n in range(12_000)]
    jobs = [
        NewJob(f"{n:05}:{topic}", topic, b"1", ttr_ms=FAR_MS, delay_ms=FAR_MS + n * span // 12_000)
        for n, topic in enumerate(topics)
    ]
    if state is State.RESERVED:
        jobs = [dataclasses.replace(job, delay_ms=0, ttr_ms=job.delay_ms) for job in jobs]
    await pool.add(jobs)
    while state is State.RESERVED and (await pop(pool, "t", count=150) or await pop(pool, "other", count=150)):
        pass
    walk, place, seen = Walk(pool), None, list[str]()
    for _ in range(1_000):
        page = await walk.peek("t", state, place)
        seen += [job.id for job in page.jobs]
        place = page.next
        if place is None:
            break
        assert "other" not in place.entry
    assert sorted(seen) == [job.id for job in sorted(jobs, key=lambda job: job.id) if job.topic == "t"]
    await pool.close()
