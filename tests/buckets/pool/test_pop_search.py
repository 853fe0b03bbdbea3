"""buckets.pool.pop_search: in a namespace of many shards, pops ask only the shards that have jobs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import Unavailable
from buckets.job import NewJob
from buckets.keys import shard_of
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics, TopicStatus
from buckets.waiting.waiting import Waiting
from tests.buckets.jobs import add, finish, kick, pop, pop_one, popped_ids
from tests.buckets.waiting.parked import LONG_S, caught_up, hearing, job_of, jobs_of, park, waiting_on
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import PATIENCE_S, tick_all, until

SHARDS = 16


@pytest.fixture
async def many(redis: Redis, clock: HeldClock) -> AsyncIterator[Pool]:
    """A pool of 16 shards that never sweeps: what the bell and the answers report must suffice."""
    pool = await Pool.open(redis, "many", shards=SHARDS, buckets=1, clock=clock)
    pool.ready_shards._now = lambda: 0.0
    yield pool
    await pool.close()


@pytest.fixture
async def ringing(many: Pool) -> AsyncIterator[Waiting]:
    async with hearing(many) as waiting:
        yield waiting


def id_in(shard: int, number: int = 0, shards: int = SHARDS) -> str:
    """The id of a job that belongs to a shard."""
    return [job_id for job_id in map(str, range(shards * 100)) if shard_of(job_id, shards) == shard][number]


async def scripts_run(redis: Redis) -> int:
    """How many scripts ran since the last call."""
    said = (await redis.read("INFO", "commandstats")).decode()
    await redis.read("CONFIG", "RESETSTAT")
    return int(said.partition("cmdstat_evalsha:calls=")[2].partition(",")[0] or 0)


async def all_heard(waiting: Waiting, pool: Pool) -> None:
    """Wait until the bell has heard everything published so far."""
    for shard in range(len(pool.keys)):
        await caught_up(waiting, pool, shard)


async def test_an_empty_topic_is_looked_up_everywhere_once(redis: Redis, many: Pool, ringing: Waiting) -> None:
    await scripts_run(redis)
    assert await pop(many, "t", "u") == []
    assert await scripts_run(redis) == SHARDS
    for _ in range(10):
        assert await pop(many, "t", "u") == []
        assert await pop(many, "u", count=100) == []
    assert await scripts_run(redis) == 0


async def test_a_job_is_found_with_one_script(redis: Redis, many: Pool, ringing: Waiting) -> None:
    await pop(many)
    for shard in range(SHARDS):
        await add(many, id_in(shard))
        await all_heard(ringing, many)
        await scripts_run(redis)
        assert await popped_ids(many, count=1) == [id_in(shard)]
        assert await pop(many) == []
        assert await scripts_run(redis) == 1


async def test_a_pop_without_a_bell_asks_all_shards(redis: Redis, many: Pool) -> None:
    for _ in range(3):
        await scripts_run(redis)
        assert await pop(many) == []
        assert await scripts_run(redis) == SHARDS


async def test_a_parked_pop_asks_only_the_shard_that_rings(redis: Redis, many: Pool, ringing: Waiting) -> None:
    parked = [await park(ringing) for _ in range(20)]
    for shard in (3, 3, 11):
        await scripts_run(redis)
        job_id = id_in(shard, len(parked))
        await add(many, job_id)
        assert (await job_of(parked.pop(0))).id == job_id
        await all_heard(ringing, many)
        assert not any(waiter.done() for waiter in parked)
        assert await scripts_run(redis) == 2  # the add and the pop


async def test_one_job_wakes_one_of_five_thousand(
    many: Pool, ringing: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    parked = [asyncio.create_task(ringing.pop(["t"], 1, LONG_S)) for _ in range(5_000)]
    await until(lambda: ringing.parked == 5_000)
    await all_heard(ringing, many)
    looks, real = [0], many.look

    def counted(*args: Any, **options: Any) -> Any:
        looks[0] += 1
        return real(*args, **options)

    monkeypatch.setattr(many, "look", counted)
    await add(many, "a")
    await until(lambda: ringing.parked == 4_999)
    await all_heard(ringing, many)
    assert looks[0] == 1
    await many.add([NewJob(f"n{n}", "t", b"") for n in range(4_999)])
    async with asyncio.timeout(PATIENCE_S):
        found = await asyncio.gather(*parked)
    assert {popped.jobs[0].id for popped in found} == {"a", *(f"n{n}" for n in range(4_999))}


async def test_what_this_process_is_told_is_ready_is_found_before_the_bell_is_heard(many: Pool) -> None:
    """The bell hears nothing of shards whose subscription it believes to stand."""
    for shard in range(SHARDS):
        many.ready_shards.stands(shard)
    assert await pop(many, "t", "u", "v") == []
    await add(many, "a")
    job = await pop_one(many)
    await many.release(job.id, delay_ms=0)
    job = await pop_one(many)
    await many.bury(job.id)
    await kick(many, job.id)
    job = await pop_one(many)
    await many.bury(job.id)
    assert await Topics(many).kick("t", 10) == 1
    await finish(many, (await pop_one(many)).id)
    await add(many, "b", delay_ms=60_000)
    await many.run("b")
    await finish(many, (await pop_one(many)).id)
    await add(many, "c", delay_ms=60_000)
    await many.update("c", delay_ms=0)
    await finish(many, (await pop_one(many)).id)
    await many.add_groups([[NewJob("d@u", "u", b""), NewJob("d@v", "v", b"")]])
    assert await popped_ids(many, "v", "u") == ["d@v", "d@u"]
    await Topics(many).pause("t")
    await add(many, "e")
    assert await pop(many) == []
    await Topics(many).resume("t")
    await finish(many, (await pop_one(many)).id)


async def test_a_lost_message_is_made_good_by_the_sweep(redis: Redis, many: Pool, redis_server: RedisServer) -> None:
    seconds = [0.0]
    many.ready_shards._now = lambda: seconds[0]
    for shard in range(SHARDS):
        many.ready_shards.stands(shard)
    other = await Pool.open(other_redis := Redis(redis_server.url), "many", clock=many.clock)
    assert await pop(many) == []
    await add(other, "a")
    assert await pop(many) == []
    seconds[0] += 1
    assert await popped_ids(many) == ["a"]
    await other_redis.close()


async def test_a_job_that_came_while_the_subscription_was_down_is_found(
    redis: Redis, many: Pool, redis_server: RedisServer
) -> None:
    other = await Pool.open(other_redis := Redis(redis_server.url), "many", clock=many.clock)
    async with hearing(many) as waiting:
        assert await pop(many) == []
        await redis.read("CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: not waiting.notifier.connected.is_set())
        await add(other, "a")
        assert await popped_ids(many) == ["a"]
        await add(other, "b")
        await until(waiting.notifier.connected.is_set)
        assert await popped_ids(many) == ["b"]
        await all_heard(waiting, many)
        await pop(many)
        await scripts_run(redis)
        assert await pop(many) == []
        assert await scripts_run(redis) == 0
    await other_redis.close()


async def test_a_pause_that_ends_does_not_lose_the_jobs(many: Pool, ringing: Waiting, clock: HeldClock) -> None:
    for shard in (2, 9):
        await add(many, id_in(shard))
    await Topics(many).pause("t", 5_000)
    await all_heard(ringing, many)
    assert (await many.pop(["t"], 10)).opens_us == 5_000_000
    clock.advance(5_000)
    assert sorted(await popped_ids(many)) == sorted([id_in(2), id_in(9)])


async def test_jobs_that_are_left_keep_the_mark(redis: Redis, many: Pool, ringing: Waiting) -> None:
    ids = {id_in(5, n) for n in range(30)}
    await many.add([NewJob(job_id, "t", b"") for job_id in ids])
    await all_heard(ringing, many)
    found: set[str] = set()
    while some := await popped_ids(many, count=7):
        found |= set(some)
    assert found == ids


async def test_jobs_that_had_no_room_keep_the_mark(many: Pool, ringing: Waiting) -> None:
    await many.add([NewJob(id_in(5, n), "t", b"x" * 1000) for n in range(2)])
    await all_heard(ringing, many)
    assert len(await pop(many, count=2, room=1_500)) == 1
    assert len(await pop(many, count=2, room=1_500)) == 1


async def test_the_order_of_topics_holds_over_the_shards(many: Pool, ringing: Waiting) -> None:
    await pop(many, "t", "u")
    for shard in range(SHARDS):
        await add(many, id_in(shard), "u" if shard % 2 else "t")
    await all_heard(ringing, many)
    jobs = await pop(many, "u", "t", count=12)
    assert [job.topic for job in jobs] == ["u"] * 8 + ["t"] * 4


async def test_all_shards_have_their_turn(many: Pool, ringing: Waiting) -> None:
    await many.add([NewJob(id_in(shard, n), "t", b"") for shard in range(SHARDS) for n in range(3)])
    await all_heard(ringing, many)
    for _ in range(3):
        found = [shard_of((await pop_one(many)).id, SHARDS) for _ in range(SHARDS)]
        assert sorted(found) == list(range(SHARDS))


@pytest.mark.parametrize("chance", range(5))
async def test_random_moves_leave_no_job_unfound(chance: int, many: Pool, ringing: Waiting, clock: HeldClock) -> None:
    """Nothing is swept: every move to ready must be reported, and no answer may clear too much."""
    dice = random.Random(chance)
    topics = Topics(many)
    names = ["t", "u", "v"]
    held: list[str] = []
    for step in range(150):
        what = dice.randrange(12)
        some = [NewJob(f"{step}.{n}", dice.choice(names), b"x", delay_ms=dice.choice([0, 0, 1_000])) for n in range(9)]
        if what < 2:
            await many.add(some[: dice.randrange(1, 9)])
        elif what < 5:
            asked = dice.sample(names, dice.randrange(1, 4))
            held += [job.id for job in await pop(many, *asked, count=dice.choice([1, 1, 3]), ttr_ms=3_000)]
        elif what < 7 and held:
            await many.release(held.pop(), delay_ms=dice.choice([0, 500]))
        elif what == 7 and held:
            await many.finish([(held.pop(), None)])
        elif what == 8:
            await topics.pause(dice.choice(names), dice.choice([None, 700]))
        elif what == 9:
            await topics.resume(dice.choice(names))
        else:
            clock.advance(dice.choice([100, 1_000]))
            await tick_all(many)
            held = [job_id for job_id in held if (job := await many.get(job_id)) and job.state.word == "reserved"]
        if step % 5 == 0:
            await all_heard(ringing, many)
            name = dice.choice(names)
            if name in [topic.name for topic in await all_topics(topics) if topic.paused_until is None]:
                ready = (await topics.stats(name)).counts["ready"]
                found = await popped_ids(many, name, count=dice.choice([1, 1000]))
                assert bool(found) == bool(ready)
                held += found


async def all_topics(topics: Topics) -> list[Any]:
    found, shard, cursor = await topics.page()
    while shard or cursor:
        more, shard, cursor = await topics.page("*", shard, cursor)
        found += more
    return found


class Torn(Redis):
    """A Redis some of whose shards are away, as behind a broken network: they do not answer."""

    def __init__(self, url: str) -> None:
        super().__init__(url, timeout_s=1.0)
        self.away: set[str] = set()
        self.seen_away: set[str] = set()  # the shards that are known to be away
        self.asked = asyncio.Event()
        self.waited_out = 0  # how often a caller waited until the timeout

    def is_away(self, key: str | bytes) -> bool:
        return key in self.seen_away

    def open_link(self, key: str | bytes) -> None:
        """None, so that all pops are searches."""

    async def call(self, name: str, *rest: Any, **arguments: Any) -> Any:
        if arguments["meta"] in self.away:
            self.asked.set()
            loop = asyncio.get_running_loop()
            begun = loop.time()
            try:
                async with asyncio.timeout(self.timeout_s):
                    await asyncio.Event().wait()
            except TimeoutError:
                raise Unavailable() from None
            finally:  # the search may give up in the same turn, and cancel this
                self.waited_out += loop.time() - begun > 0.9 * self.timeout_s
        return await super().call(name, *rest, **arguments)

    async def read(self, *command: Any) -> Any:
        shard, _, _ = str(command[1] if len(command) > 1 else "").partition("}")
        if any(meta.startswith(shard + "}") for meta in self.away):
            raise Unavailable()
        return await super().read(*command)


@pytest.fixture
async def torn(redis: Redis, redis_server: RedisServer) -> AsyncIterator[Pool]:
    pool = await Pool.open(Torn(redis_server.url), "many", shards=4, buckets=1)
    yield pool
    await pool.close()
    await pool.redis.close()


def tear(pool: Pool, *shards: int, known: bool) -> Torn:
    redis = pool.redis
    assert isinstance(redis, Torn)
    redis.away = {pool.keys[shard].meta for shard in shards}
    redis.seen_away = set(redis.away) if known else set()
    return redis


async def test_a_shard_that_is_away_is_passed_over(torn: Pool) -> None:
    redis = tear(torn, 0, 2, known=True)
    await add(torn, id_in(1, 0, 4))
    assert len(await pop(torn, count=10)) == 1
    assert await pop(torn) == []
    assert not redis.asked.is_set()


async def test_a_shard_that_goes_away_while_it_is_asked_is_not_waited_for(torn: Pool) -> None:
    redis = tear(torn, 0, 1, 2, known=False)
    await add(torn, id_in(3, 0, 4))
    torn.ready_shards.stands(3)
    popping = asyncio.create_task(pop(torn, count=10))
    while not popping.done():
        waiting = asyncio.create_task(redis.asked.wait())
        await asyncio.wait({popping, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        redis.asked.clear()
        redis.seen_away = set(redis.away)
    assert [job.id for job in await popping] == [id_in(3, 0, 4)]


async def test_a_pop_goes_on_behind_a_shard_that_did_not_answer(torn: Pool) -> None:
    """The other shards are still asked, in the time that is left."""
    tear(torn, 2, known=False)
    torn.redis.timeout_s = 0.2
    await torn.add([NewJob(id_in(shard, 0, 4), "t", b"") for shard in (0, 1, 3)])
    found: set[str] = set()
    for _ in range(8):
        found |= set(await popped_ids(torn))
    assert found == {id_in(shard, 0, 4) for shard in (0, 1, 3)}


async def test_several_shards_that_do_not_answer_are_waited_for_once(torn: Pool) -> None:
    redis = tear(torn, 0, 1, 2, known=False)
    await add(torn, id_in(3, 0, 4))
    assert await popped_ids(torn, count=10) == [id_in(3, 0, 4)]
    assert redis.waited_out == 1


async def test_an_empty_pop_does_not_fail_for_a_shard_that_is_away(torn: Pool) -> None:
    """Nor does it claim that a topic does not exist which that shard may have."""
    topics = Topics(torn)
    await topics.pause("t")
    tear(torn, 0, known=True)
    assert await topics.status(["t", "u"]) == TopicStatus(True, {"t": 0})
    assert await topics.status(["u"]) == TopicStatus(True, {})
    assert await topics.paused_until("t", near=id_in(1, 0, 4)) == 0
    tear(torn, 0, known=False)
    assert await topics.status(["u"]) == TopicStatus(True, {})


@pytest.mark.parametrize("known", [True, False])
async def test_a_pop_is_unavailable_when_no_shard_answers(torn: Pool, known: bool) -> None:
    tear(torn, 0, 1, 2, 3, known=known)
    with pytest.raises(Unavailable):
        await pop(torn)


async def test_a_parked_pop_is_woken_when_its_shard_is_back(torn: Pool, redis_server: RedisServer) -> None:
    redis = tear(torn, 1, known=True)
    waiting = waiting_on(torn)
    for shard in (0, 2, 3):
        torn.ready_shards.stands(shard)
    parked = asyncio.create_task(waiting.pop(["t"], 1, LONG_S))
    await until(lambda: waiting.parked == 1)
    other = await Pool.open(other_redis := Redis(redis_server.url), "many")
    await add(other, id_in(1, 0, 4))
    redis.away, redis.seen_away = set(), set()
    async with asyncio.timeout(PATIENCE_S):
        listening = asyncio.create_task(waiting.notifier.run())
        assert [job.id for job in await jobs_of(parked)] == [id_in(1, 0, 4)]
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await other_redis.close()
