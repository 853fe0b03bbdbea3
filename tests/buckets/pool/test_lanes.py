"""buckets.pool.lanes: what comes in one turn goes to Redis together, in the right order, and no answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from buckets.errors import AlreadyExists, JobQueueError, NotFound, NotReserved, Unanswered
from buckets.job import NewJob, State, Tag
from buckets.keys import shard_of
from buckets.pool.codec import Added, Prepared
from buckets.pool.lanes import Done, Lane, SharedPop
from buckets.pool.limits import Limits
from buckets.pool.pool import Pool
from buckets.pool.pop_search import Ask, Popped
from buckets.redis.client import Redis
from tests.buckets.jobs import add, finish, get, pop, pop_one, popped_ids
from tests.buckets.redis.links import link_of
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

ROOM = 8 << 20


def ask(*topics: str, worker: str = "") -> Ask:
    return Ask(topics or ("t",), "", ROOM, "pop", worker)


def prepared(pool: Pool, job_id: str, **fields: Any) -> Prepared:
    return pool._preparing.job(NewJob(job_id, "t", b'"body"', **fields))


async def opened(pool: Pool) -> Lane:
    """The lane of the only shard, once Redis is connected."""
    await pool.redis.read("PING")
    assert pool.lanes.is_open
    return pool._lanes[0]


class Outcomes:
    """What callers were told, in order."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[Any] = asyncio.Queue()

    def take(self, outcome: Any) -> None:
        self._told.put_nowait(outcome)

    async def next(self) -> Any:
        async with asyncio.timeout(10):
            return await self._told.get()

    @property
    def is_empty(self) -> bool:
        return self._told.empty()


async def calls(redis: Redis, command: str = "evalsha") -> int:
    stats = (await redis.read("INFO", "commandstats")).decode()
    lines = [line for line in stats.splitlines() if line.startswith(f"cmdstat_{command}:")]
    return int(lines[0].partition("calls=")[2].partition(",")[0]) if lines else 0


async def test_the_jobs_of_one_turn_share_a_script_and_each_caller_gets_its_own(redis: Redis, pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    before = await calls(redis)
    for n in range(5):
        assert lanes.add([prepared(pool, f"a{n}"), prepared(pool, f"b{n}", delay_ms=1000)], told.take)
    assert told.is_empty, "never within the call"
    for _ in range(5):
        now, later = await told.next()
        assert (now.result, now.state, later.state) == ("created", "ready", "delayed")
    assert await calls(redis) == before + 1


async def test_adds_of_one_turn_keep_each_its_own_condition(pool: Pool) -> None:
    await add(pool, "a", "other")
    lanes, told = await opened(pool), Outcomes()
    assert lanes.add([prepared(pool, "a")], told.take, "t")
    assert lanes.add([prepared(pool, "b")], told.take)
    (refused,), (added,) = await told.next(), await told.next()
    assert isinstance(refused, AlreadyExists) and refused.state is None
    assert added.result == "created"


async def test_an_id_that_comes_twice_in_a_turn_is_added_once(pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    assert lanes.add([prepared(pool, "a")], told.take)
    assert lanes.add([prepared(pool, "a")], told.take)
    assert [(await told.next())[0].result for _ in range(2)] == ["created", "existing"]
    assert not lanes.add([prepared(pool, "b"), prepared(pool, "b")], told.take)
    assert not lanes.finish([("b", None), ("b", None)], told.take)


async def test_more_than_a_script_may_take_is_not_taken_and_less_is_spread(redis: Redis, pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    assert not lanes.add([prepared(pool, str(n)) for n in range(201)], told.take)
    assert not lanes.pop(ask(), 201, told.take)
    before = await calls(redis)
    for n in range(3):
        assert lanes.add([prepared(pool, f"{n}-{m}") for m in range(100)], told.take)
    assert [len(await told.next()) for _ in range(3)] == [100, 100, 100]
    assert await calls(redis) == before + 2
    large = NewJob("large", "t", b"1" * ((1 << 20) + 1))
    assert not lanes.add([pool._preparing.job(large)], told.take)


async def test_a_pop_comes_behind_the_finishes_and_adds_of_its_turn(pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    await add(pool, "a")
    job = await pop_one(pool)
    lanes.pop(ask(), 1, told.take)
    lanes.add([prepared(pool, "b")], told.take)
    lanes.finish([("a", job.lease)], told.take)
    finished, added, popped = [await told.next() for _ in range(3)]
    assert (finished, added[0].result, popped.jobs[0].id) == (["finished"], "created", "b")


async def test_a_pop_made_when_another_is_answered_comes_behind_the_finishes_of_its_turn(pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    await add(pool, "a")
    job = await pop_one(pool)

    def go_on(popped: Popped) -> None:
        assert lanes.pop(ask(), 1, told.take)
        assert lanes.finish([("a", job.lease)], told.take)

    assert lanes.pop(ask(), 1, go_on)
    assert await told.next() == ["finished"]
    assert (await told.next()).jobs == []


async def test_a_refusal_is_told_to_the_caller_whose_job_it_is(pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    await add(pool, "a")
    job = await pop_one(pool)
    lanes.finish([("none", None)], told.take)
    lanes.finish([("a", job.lease)], told.take)
    (missing,), (state,) = await told.next(), await told.next()
    assert (type(missing), state) == (NotFound, "finished")


async def test_like_pops_are_served_in_their_order_and_by_one_script(redis: Redis, pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    for job_id in "abc":
        await add(pool, job_id)
    before = await calls(redis)
    for worker in ("x", "y", "z", "w"):
        lanes.pop(ask(worker=worker), 1, told.take)
    popped: list[Popped] = [await told.next() for _ in range(4)]
    assert [[job.id for job in each.jobs] for each in popped] == [["a"], ["b"], ["c"], []]
    assert await calls(redis) == before + 1
    assert [(await get(pool, job_id)).text(Tag.WORKER) for job_id in "abc"] == ["x", "y", "z"]


async def test_large_jobs_are_popped_by_as_many_scripts_as_that_takes(redis: Redis, pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    for number in range(10):
        await add(pool, str(number), body=b"1" * 200_000)
    before = await calls(redis)
    lanes.pop(ask(), 6, told.take)
    lanes.pop(ask(worker="w"), 1, told.take)
    lanes.pop(ask(worker="v"), 1, told.take)
    popped: list[Popped] = [await told.next() for _ in range(3)]
    assert sorted(job.id for each in popped for job in each.jobs) == [str(number) for number in range(8)]
    assert [len(each.jobs) for each in popped] == [6, 1, 1] or [len(each.jobs) for each in popped] == [1, 1, 6]
    assert await calls(redis) > before + 3
    lanes.pop(ask()._replace(room=1), 2, told.take)
    assert len((await told.next()).jobs) == 1, "one fits always"


async def test_pops_that_come_while_one_is_in_flight_leave_together(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis, "jq")
    lanes, told = await opened(pool), Outcomes()
    before = await calls(redis)
    own_server.freeze()
    lanes.pop(ask(), 1, told.take)
    await asyncio.sleep(0)  # the first has left
    for _ in range(3):
        lanes.pop(ask(), 1, told.take)
        await asyncio.sleep(0)
    own_server.thaw()
    assert [(await told.next()).jobs for _ in range(4)] == [[]] * 4
    assert await calls(redis) == before + 2
    await pool.close()
    await redis.close()


async def test_a_pop_that_is_withdrawn_before_it_leaves_is_not_sent(redis: Redis, pool: Pool) -> None:
    lanes, gone, told = await opened(pool), Outcomes(), Outcomes()
    await add(pool, "a")
    withdrawn = gone.take
    lanes.pop(ask(), 1, withdrawn)
    lanes.pop(ask(), 1, told.take)
    lanes.withdraw(withdrawn)
    assert [job.id for job in (await told.next()).jobs] == ["a"]
    assert gone.is_empty


async def test_a_server_that_does_not_know_the_script_sends_all_the_complete_way(redis: Redis, pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    await redis.read("SCRIPT", "FLUSH")
    lanes.add([prepared(pool, "a")], told.take)
    lanes.finish([("a", None)], told.take)
    lanes.pop(ask(), 1, told.take)
    assert [await told.next() for _ in range(3)] == [None, None, None]


async def test_a_lost_connection_lets_be_repeated_only_what_may_be(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis, "jq")
    lanes, told = await opened(pool), Outcomes()
    own_server.freeze()
    lanes.finish([("a", None)], told.take)
    lanes.add([prepared(pool, "a")], told.take)
    lanes.add([prepared(pool, "b", retention_ms=0)], told.take)
    lanes.pop(ask(), 1, told.take)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (await link_of(redis)).lose()
    finished, kept, once, popped = [await told.next() for _ in range(4)]
    assert (finished, kept) == (None, None)
    assert isinstance(once, Unanswered) and isinstance(popped, Unanswered)
    own_server.thaw()
    await pool.close()
    await redis.close()


async def test_a_redis_that_stays_silent_fails_all_of_them_at_the_time_out(own_server: RedisServer) -> None:
    redis = Redis(own_server.url, timeout_s=1.0)
    pool = await Pool.open(redis, "jq")
    lanes, told = await opened(pool), Outcomes()
    own_server.freeze()
    lanes.finish([("a", None)], told.take)
    lanes.add([prepared(pool, "a")], told.take)
    lanes.pop(ask(), 1, told.take)
    for _ in range(3):
        outcome = await told.next()
        assert isinstance(outcome, JobQueueError) and outcome.code == "UNAVAILABLE"
    assert not lanes.is_open
    own_server.thaw()
    await pool.close()
    await redis.close()


async def test_a_caller_with_a_bug_keeps_nothing_from_the_others(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    lanes, told = await opened(pool), Outcomes()

    def fail(outcome: Any) -> None:
        raise RuntimeError("a bug")

    lanes.add([prepared(pool, "a")], fail)
    lanes.add([prepared(pool, "b")], told.take)
    assert isinstance((await told.next())[0], Added)
    assert "answer.failed" in caplog.text
    assert lanes.is_open


async def test_a_value_that_cannot_be_sent_keeps_nobody_waiting_and_no_close(pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    lanes.finish([("\ud800", None)], told.take)
    lanes.pop(ask(worker="\ud800"), 1, told.take)
    lanes.add([prepared(pool, "a")], told.take)
    outcomes = [await told.next() for _ in range(3)]
    assert outcomes.count(None) == 2, "the complete way says why"
    assert [each[0].result for each in outcomes if each] == ["created"]
    async with asyncio.timeout(10):
        await pool.close()


async def test_a_job_that_cannot_be_read_keeps_nobody_waiting(redis: Redis, pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    await add(pool, "a")
    keys = pool.keys[0]
    number = (await redis.read("LPOP", keys.ready(4, "t"))).partition(b":")[0]
    await redis.read("SET", keys.job("").encode() + b"\xff", await redis.read("GET", keys.job("a")))
    await redis.read("RPUSH", keys.ready(4, "t"), number + b":\xff")
    lanes.pop(ask(), 1, told.take)
    await asyncio.sleep(0)
    lanes.pop(ask(), 1, told.take)  # it waits for the first
    assert isinstance(await told.next(), JobQueueError)
    assert (await told.next()).jobs == []


async def test_closing_waits_for_what_is_in_flight_and_takes_no_more(pool: Pool) -> None:
    lanes, told = await opened(pool), Outcomes()
    lanes.add([prepared(pool, "a")], told.take)
    lanes.pop(ask(), 1, told.take)
    await pool.close()
    (added,), popped = await told.next(), await told.next()
    assert (added.result, [job.id for job in popped.jobs]) == ("created", ["a"])
    assert not lanes.add([prepared(pool, "b")], told.take)


async def test_a_look_gets_what_a_pop_would_get_by_either_way(pool: Pool) -> None:
    told = Outcomes()
    for job_id in "abcd":
        await add(pool, job_id)
    pool.look(ask(), 1, told.take)
    assert [job.id for job in (await told.next()).jobs] == ["a"]
    pool._lanes[0].closed = True
    pool.look(ask(), 1, told.take)
    pool.look(ask(), 2, told.take)
    popped = [await told.next(), await told.next()]
    assert sorted(job.id for each in popped for job in each.jobs) == ["b", "c", "d"]


SHARDS = 3
IDS = ["a", "b", "c", "f", "g", "i"]  # two a shard


@pytest.fixture
async def several(redis: Redis) -> AsyncIterator[Pool]:
    """A pool of several shards, which hears all of them, and whose topic `t` is known to be empty."""
    pool = await Pool.open(redis, "many", shards=SHARDS)
    assert {shard_of(job_id, SHARDS) for job_id in IDS} == {*range(SHARDS)}
    pool.ready_shards._now = lambda: 0.0
    for shard in range(SHARDS):
        pool.ready_shards.stands(shard)
    await redis.read("PING")
    assert await pop(pool) == []
    yield pool
    await pool.close()


async def test_jobs_of_several_shards_take_a_script_a_shard_and_come_back_in_order(redis: Redis, several: Pool) -> None:
    told, before = Outcomes(), await calls(redis)
    some = [prepared(several, job_id, delay_ms=1000 * place) for place, job_id in enumerate(IDS)]
    assert several.lanes.add(some, told.take)
    assert several.lanes.add([prepared(several, "a")], told.take)
    outcomes = sorted([await told.next(), await told.next()], key=len)
    assert [added.result for added in outcomes[0]] == ["existing"]
    assert [added.due for added in outcomes[1]] == sorted({added.due for added in outcomes[1]})
    assert await calls(redis) == before + SHARDS + 1, "an id that comes twice needs a script of its own"
    assert several.lanes.finish([(job_id, None) for job_id in [*IDS, "none"]], told.take)
    assert [type(outcome) for outcome in await told.next()] == [NotReserved] * 6 + [NotFound]


async def test_a_pop_of_several_shards_asks_first_where_jobs_are(redis: Redis, several: Pool) -> None:
    told = Outcomes()
    assert several.lanes.add([prepared(several, job_id) for job_id in IDS], told.take)
    await told.next()
    before = await calls(redis)
    for _ in IDS:
        assert several.lanes.pop(ask(), 1, told.take)
    popped = [(await told.next()).jobs for _ in IDS]
    assert sorted(job.id for jobs in popped for job in jobs) == IDS
    assert await calls(redis) == before + SHARDS, "callers of one turn go on together"
    assert several.lanes.pop(ask(), 1, told.take)
    assert (await told.next()) == Popped(ask_why=True)
    assert await calls(redis) == before + SHARDS, "an empty shard is not asked again"


async def test_an_add_is_sent_although_a_pop_goes_on_to_the_next_shard_in_its_turn(several: Pool) -> None:
    told, added = Outcomes(), Outcomes()

    def add_a_job(popped: Popped) -> None:
        assert several.lanes.add([prepared(several, IDS[0])], added.take)
        told.take(popped)

    several.ready_shards.heard(0, "t")
    assert several.lanes.pop(ask("t"), 1, add_a_job)
    assert several.lanes.pop(ask("a topic that all shards are asked for"), 1, told.take)
    assert (await added.next())[0].result == "created"
    assert [(await told.next()).jobs for _ in range(2)] == [[], []]


async def test_a_part_that_a_lane_does_not_take_takes_the_complete_way(several: Pool) -> None:
    told = Outcomes()
    lanes = several._lanes
    lanes[shard_of("f", SHARDS)].closed = True
    jobs = sorted(IDS, key=lambda job_id: lanes[shard_of(job_id, SHARDS)].closed)
    assert several.lanes.add([prepared(several, job_id) for job_id in jobs], told.take)
    assert [added.result for added in await told.next()] == ["created"] * 6
    first = await popped_ids(several, count=10)
    assert 0 < len(first) < 6, "a pop that has jobs does not wait for those of other shards"
    assert sorted([*first, *await popped_ids(several, count=10)]) == IDS
    assert several.lanes.finish([(job_id, None) for job_id in jobs], told.take)
    assert await told.next() == ["finished"] * 6
    assert not several.lanes.add([prepared(several, job_id) for job_id in jobs[::-1]], told.take), "nothing was done"


async def test_pops_do_not_wait_for_a_silent_shard_and_its_jobs_go_back(
    several: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    its_own, other = "f", next(job_id for job_id in IDS if shard_of(job_id, SHARDS) != shard_of("f", SHARDS))
    await add(several, its_own)
    await add(several, other)
    silent, held, told = shard_of(its_own, SHARDS), list[Callable[[], None]](), Outcomes()
    search = several._lanes[silent].search

    def hold(pops: SharedPop, topics: Sequence[str], limits: Limits, done: Done) -> None:
        search(pops, topics, limits, lambda outcome: held.append(partial(done, outcome)))

    monkeypatch.setattr(several._lanes[silent], "search", hold)
    for _ in range(2):
        assert several.lanes.pop(ask(), 1, told.take)
    await until(lambda: bool(held))
    monkeypatch.setattr(several, "is_passed_over", lambda shard: shard == silent)
    assert [await told.next() for _ in range(2)] == [None, None], "their callers go on in the complete way"
    assert await popped_ids(several, count=2) == [other]
    answer_late = held.pop()
    answer_late()
    monkeypatch.undo()
    await until(lambda: _is_ready(several, its_own))
    assert await popped_ids(several, count=2) == [its_own]


async def _is_ready(pool: Pool, job_id: str) -> bool:
    return (await get(pool, job_id)).state is State.READY


async def test_concurrent_adds_are_one_script_and_so_are_finishes(redis: Redis, live_pool: Pool) -> None:
    await add(live_pool, "first")
    await redis.read("CONFIG", "RESETSTAT")
    await asyncio.gather(*(add(live_pool, f"{n}") for n in range(50)))
    await asyncio.gather(*(finish(live_pool, job.id, job.lease) for job in await pop(live_pool, count=100)))
    said = (await redis.read("INFO", "commandstats")).decode()
    assert "cmdstat_evalsha:calls=3," in said  # with the pop


async def test_an_add_that_may_be_repeated_is_kept_whatever_shared_its_script(
    own_server: RedisServer,
) -> None:
    """Otherwise an add that keeps would be lost with the connection, as one that replaces must be."""
    redis = Redis(own_server.url)
    pool = await Pool.open(redis)
    own_server.freeze()
    keeping = asyncio.create_task(pool.add([NewJob("a", "t", b"1")]))
    replacing = asyncio.create_task(pool.add([NewJob("b", "t", b"1", if_exists="replace")]))
    for _ in range(5):
        await asyncio.sleep(0)
    own_server.kill()
    own_server.start()
    (kept,), (replaced,) = await asyncio.gather(keeping, replacing)
    assert isinstance(kept, Added)
    assert not isinstance(replaced, Added)
    await redis.close()


async def test_the_same_id_handed_in_by_many_at_once_is_one_job(live_pool: Pool) -> None:
    results = [result.result for result in await asyncio.gather(*(add(live_pool, "a") for _ in range(20)))]
    assert sorted(results) == ["created"] + ["existing"] * 19
    assert await popped_ids(live_pool) == ["a"]


@pytest.mark.parametrize("shards", [1, 4])
async def test_what_is_asked_once_a_finish_is_sent_comes_behind_it(own_server: RedisServer, shards: int) -> None:
    """Otherwise a pop would hand out again a job whose lease has expired and which the same worker finished before.
    Redis has just been started: it knows only the scripts that a new connection loads."""
    redis = Redis(own_server.url)
    pool = await Pool.open(redis, shards=shards)
    for n in range(12):
        await add(pool, str(n))
    for job in await pop(pool, count=12):
        await pool.release(job.id, job.lease)
    sent = asyncio.Event()
    finishing = asyncio.create_task(pool.finish([(str(n), None) for n in range(12)], sent.set))
    await sent.wait()
    assert not finishing.done()
    assert await popped_ids(pool) == []
    assert await finishing == ["finished"] * 12
    await pool.close()
    await redis.close()


async def test_who_names_a_job_twice_keeps_nobody_else_waiting(redis: Redis, live_pool: Pool) -> None:
    """Each mention of the job is a script of its own, one behind the other."""
    for name in "abc":
        await add(live_pool, name)
    await pop(live_pool, count=3)
    ended: list[str] = []

    async def finish_all(name: str, *jobs: str) -> None:
        await live_pool.finish([(job, None) for job in jobs])
        ended.append(name)

    asked = [("first", ["a"]), ("twice", ["b"] * 20), ("other", ["c"]), ("same", ["b"])]
    await asyncio.gather(*(finish_all(name, *jobs) for name, jobs in asked))
    assert ended[-1] == "twice"
