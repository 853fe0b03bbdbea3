"""buckets.redis.client: the client, with a healthy Redis and with one in trouble."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from buckets.errors import JobQueueError, NoMeta, NotFound, Unanswered, Unavailable
from buckets.job import NewJob
from buckets.pool.codec import Added
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets.books import check_books
from tests.buckets.instances import take
from tests.buckets.jobs import add, finish, pop_one, popped_ids, state
from tests.buckets.redis.links import known_link
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import PATIENCE_S, until


@pytest.fixture
async def own(own_server: RedisServer) -> AsyncIterator[Redis]:
    """A client of a Redis that the test may do anything to."""
    redis = Redis(own_server.url)
    await redis.read("PING")
    yield redis
    await redis.close()


@pytest.fixture
async def operator(own_server: RedisServer) -> AsyncIterator[Redis]:
    """Another client of the same Redis."""
    redis = Redis(own_server.url)
    await redis.read("PING")
    yield redis
    await redis.close()


async def info(redis: Redis, section: str, field: str) -> int:
    said = (await redis.read("INFO", section)).decode()
    return int(said.split(f"{field}:")[1].split()[0])


async def test_answers_come_to_those_who_asked(redis: Redis) -> None:
    texts = [f"{n}" * (n % 50 + 1) for n in range(2_000)]
    answers = await asyncio.gather(*(redis.read("ECHO", text) for text in texts))
    assert [answer.decode() for answer in answers] == texts


async def test_what_is_asked_in_one_turn_leaves_together(redis: Redis) -> None:
    before = await info(redis, "stats", "total_reads_processed")
    await asyncio.gather(*(redis.read("PING") for _ in range(500)))
    assert await info(redis, "stats", "total_reads_processed") - before < 10


async def test_all_callers_share_one_connection(redis: Redis) -> None:
    before = await info(redis, "stats", "total_connections_received")
    await asyncio.gather(*(redis.read("PING") for _ in range(500)))
    assert await info(redis, "stats", "total_connections_received") == before


async def test_a_caller_that_is_gone_does_not_shift_the_answers_of_others(redis: Redis) -> None:
    tasks = [asyncio.create_task(redis.read("ECHO", f"{n}")) for n in range(300)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    for n, answer in enumerate(answers):
        assert isinstance(answer, asyncio.CancelledError) if n % 3 == 0 else answer == f"{n}".encode()


async def test_the_words_of_scripts_become_errors_and_other_words_stay(redis: Redis, pool: Pool) -> None:
    await redis.read("FLUSHALL")
    with pytest.raises(NoMeta):
        await take(pool, "token")
    with pytest.raises(JobQueueError, match="WRONGTYPE") as error:
        await redis.read("SET", "a", "b")
        await redis.read("LPUSH", "a", "b")
    assert error.value.code == "INTERNAL"


async def test_a_flush_of_the_scripts_under_load_is_not_noticed(
    redis: Redis, live_pool: Pool, redis_server: RedisServer
) -> None:
    operator, flushing = Redis(redis_server.url), True

    async def flush() -> int:
        flushes = 0
        while flushing:
            await operator.read("SCRIPT", "FLUSH")
            flushes += 1
        return flushes

    async def work(worker: int) -> None:
        for n in range(30):
            job_id = f"{worker}.{n}"
            await add(live_pool, job_id, f"t{worker}", ttr_ms=60_000)
            assert await finish(live_pool, (await pop_one(live_pool, f"t{worker}")).id) == "finished"

    flusher = asyncio.create_task(flush())
    await asyncio.gather(*(work(worker) for worker in range(8)))
    flushing = False
    assert await flusher > 1
    await operator.close()
    await check_books(redis, live_pool)


def knows_that_it_is_lost(redis: Redis) -> bool:
    link = known_link(redis)
    return link is not None and link.lost


def waits_for(redis: Redis, answers: int) -> bool:
    link = known_link(redis)
    return link is not None and len(link._waiting) == answers


async def test_the_connection_of_a_key_is_another_one_after_each_loss(own_server: RedisServer, own: Redis) -> None:
    first = await own.link_to("a")
    assert await own.link_to("b") is first
    own_server.kill()
    await until(lambda: first.lost)
    own_server.start()
    second = await own.link_to("a")
    assert second is not first
    assert not second.lost


async def test_calls_wait_for_a_redis_that_is_started_again(own_server: RedisServer, own: Redis) -> None:
    pool = await Pool.open(own)
    own_server.kill()
    await until(lambda: knows_that_it_is_lost(own))
    waiting = asyncio.gather(add(pool, "a"), pool.pop(["u"]), own.read("PING"))
    await asyncio.sleep(0)
    own_server.start()
    added, popped, pong = await waiting
    assert (added.result, popped.jobs, pong) == ("created", [], b"PONG")
    assert await popped_ids(pool) == ["a"]


async def test_redis_killed_again_and_again_needs_no_restart_of_ours(own_server: RedisServer, own: Redis) -> None:
    pool = await Pool.open(own)
    for turn in range(5):
        calls = [asyncio.create_task(pool.add([NewJob(f"{turn}.{n}", "t", b"")])) for n in range(20)]
        await asyncio.sleep(0)
        own_server.kill()
        own_server.start()
        assert all(isinstance(result, Added) for (result,) in await asyncio.gather(*calls))
        assert (await add(pool, f"{turn}.last")).result == "created"


async def test_a_pop_that_got_no_answer_is_not_asked_again(own_server: RedisServer, own: Redis) -> None:
    """It may have reserved a job; a second one would reserve another."""
    pool = await Pool.open(own)
    own_server.freeze()
    popping = asyncio.create_task(pool.pop(["t"]))
    adding = asyncio.create_task(add(pool, "a"))
    await asyncio.sleep(0)
    await until(lambda: waits_for(own, 2))
    own_server.kill()
    own_server.start()
    with pytest.raises(Unanswered):
        await popping
    assert (await adding).result == "created"


async def test_an_update_that_got_no_answer_is_made_again_unless_it_sets_a_time(
    own_server: RedisServer, own: Redis
) -> None:
    """Its job may have fired by then, and the update would find itself too late."""
    pool = await Pool.open(own)
    own_server.freeze()
    changes = ({"delay_ms": 1}, {"due_ms": 1}, {"delay_ms": 1, "body": b"1"}, {"priority": 1})
    updates = [asyncio.create_task(pool.update("a", **each)) for each in changes]
    await until(lambda: waits_for(own, len(updates)))
    own_server.kill()
    own_server.start()
    *timed, plain = await asyncio.gather(*updates, return_exceptions=True)
    assert [type(each) for each in timed] == [Unanswered] * 3
    assert isinstance(plain, NotFound)


async def test_a_redis_that_says_nothing_is_unavailable_and_welcome_when_it_speaks_again(
    own_server: RedisServer,
) -> None:
    redis = Redis(own_server.url, timeout_s=1.0)
    pool = await Pool.open(redis)
    own_server.freeze()
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(
            pool.pop(["t"]), Topics(pool).stats("t"), add(pool, "a"), finish(pool, "a"), return_exceptions=True
        )
        assert [isinstance(answer, Unavailable) for answer in answers] == [True] * 4
        with pytest.raises(Unavailable) as refusal:
            await pool.pop(["t"])
        assert refusal.value.retry_after > 0
        own_server.thaw()
        await until(lambda: answers_again(redis))
        await add(pool, "b")
        assert "b" in await popped_ids(pool)
    await redis.close()


async def answers_again(redis: Redis) -> bool:
    with contextlib.suppress(Unavailable):
        await redis.read("PING")
        return True
    return False


async def test_a_pop_whose_caller_left_while_redis_was_silent_gives_the_job_back(
    own_server: RedisServer, own: Redis
) -> None:
    pool = await Pool.open(own)
    await add(pool, "a", tries=1)
    own_server.freeze()
    popping = asyncio.create_task(pool.pop(["t"]))
    await until(lambda: waits_for(own, 1))
    popping.cancel()
    await asyncio.gather(popping, return_exceptions=True)
    own_server.thaw()
    await pool.close()
    assert await state(pool, "a") == "ready"
    assert (await pop_one(pool)).attempts == 1


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("turns", range(5))
async def test_a_pop_whose_caller_leaves_just_when_the_answer_comes_gives_the_job_back(
    redis: Redis, turns: int, count: int
) -> None:
    """The answer has arrived, but its caller has not run since."""
    pool = await Pool.open(redis)
    await pool.pop(["t"])  # Redis knows the script from now on
    await add(pool, "a", tries=1)
    popping = asyncio.create_task(pool.pop(["t"], count))
    while not waits_for(redis, 1):  # noqa: ASYNC110 - turn by turn
        await asyncio.sleep(0)
    while waits_for(redis, 1):  # noqa: ASYNC110
        await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    if popping.cancel():
        with pytest.raises(asyncio.CancelledError):
            await popping
        await pool.close()
        assert (await pop_one(pool)).attempts == 1
    else:
        assert turns >= 1  # by then it was done
        assert [job.id for job in (await popping).jobs] == ["a"]


def point(place: Path, at: str) -> None:
    place.unlink(missing_ok=True)
    place.symlink_to(at)


async def test_one_that_takes_connections_and_never_speaks_does_not_hold_us_for_ever(
    own_server: RedisServer, tmp_path: Path
) -> None:
    """A host that disappears in the middle of a handshake."""
    silent, place = str(own_server.socket) + ".silent", Path(str(own_server.socket) + ".place")
    taken: list[asyncio.StreamWriter] = []
    server = await asyncio.start_unix_server(lambda reader, writer: taken.append(writer), silent)
    point(place, silent)
    redis = Redis(f"unix://{place}", timeout_s=1.0)
    with pytest.raises(Unavailable):
        await redis.read("PING")
    assert taken
    point(place, str(own_server.socket))
    await until(lambda: answers_again(redis))
    await redis.close()
    for writer in taken:
        writer.close()
    server.close()


async def test_calls_wait_while_a_failed_over_redis_is_read_only(own: Redis, operator: Redis) -> None:
    pool = await Pool.open(own)
    await operator.read("REPLICAOF", "127.0.0.1", "1")
    calls = asyncio.gather(add(pool, "a"), pool.pop(["u"]))
    await until(lambda: has_refused(operator, "READONLY"))
    await operator.read("REPLICAOF", "NO", "ONE")
    added, popped = await calls
    assert (added.result, popped.jobs) == ("created", [])


async def test_a_redis_that_stays_read_only_is_unavailable_and_says_why(own_server: RedisServer) -> None:
    redis = Redis(own_server.url, timeout_s=1.0)
    pool = await Pool.open(redis)
    await redis.read("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(Unavailable, match="Redis refuses for now"):
        await pool.pop(["t"])
    await redis.close()


async def has_refused(redis: Redis, word: str) -> bool:
    return f"errorstat_{word}:" in (await redis.read("INFO", "errorstats")).decode()


async def test_calls_wait_while_a_script_of_another_program_keeps_redis_busy(
    own: Redis, operator: Redis, own_server: RedisServer
) -> None:
    pool = await Pool.open(own)
    await operator.read("CONFIG", "SET", "busy-reply-threshold", 1)
    program = Redis(own_server.url)
    busy = asyncio.create_task(program.read("EVAL", "while true do end", 0))
    adding = asyncio.create_task(add(pool, "a"))
    await until(lambda: kill_script(operator))
    with pytest.raises(JobQueueError, match="killed"):
        await busy
    assert (await adding).result == "created"
    await program.close()


async def kill_script(redis: Redis) -> bool:
    with contextlib.suppress(JobQueueError):
        await redis.read("SCRIPT", "KILL")
        return True
    return False


async def test_calls_wait_while_redis_loads_its_data(own_server: RedisServer, own: Redis) -> None:
    pool = await Pool.open(own)
    await pool.add([NewJob(f"{n:03}", "t", b"x" * 2_000) for n in range(200)])
    await own.read("SAVE")
    own_server.kill()
    await until(lambda: knows_that_it_is_lost(own))
    own_server.start("--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024", loaded=False)
    assert await popped_ids(pool, count=2) == ["000", "001"]
    assert await has_refused(own, "LOADING")


async def listen_on(redis: Redis, channel: str, heard: Callable[[str], None], connected: Callable[[], None]) -> None:
    """Listen again whenever the subscription is lost."""
    while True:
        with contextlib.suppress(Unavailable):
            await redis.listen(channel, heard, connected)


async def test_messages_are_heard_and_heard_again_after_the_connection_broke(
    redis: Redis, redis_server: RedisServer
) -> None:
    heard: list[tuple[str, str]] = []
    begun: list[str] = []

    def listen(channel: str) -> asyncio.Task[None]:
        return asyncio.create_task(
            listen_on(redis, channel, lambda said: heard.append((channel, said)), lambda: begun.append(channel))
        )

    listening = asyncio.gather(listen("one"), listen("two"))
    await until(lambda: len(begun) == 2)
    assert len((await redis.read("CLIENT", "LIST", "TYPE", "pubsub")).splitlines()) == 1
    await redis.read("SPUBLISH", "one", "a")
    await redis.read("SPUBLISH", "two", "b")
    await until(lambda: heard == [("one", "a"), ("two", "b")])
    await redis.read("CLIENT", "KILL", "TYPE", "pubsub")
    await until(lambda: len(begun) == 4)
    await redis.read("SPUBLISH", "one", "c")
    await until(lambda: heard[2:] == [("one", "c")])
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_a_silent_redis_is_listened_to_again_when_it_speaks(own_server: RedisServer) -> None:
    redis = Redis(own_server.url, timeout_s=1.0)
    begun: list[int] = []
    heard: list[str] = []
    listening = asyncio.create_task(listen_on(redis, "one", heard.append, lambda: begun.append(1)))
    await until(lambda: len(begun) == 1)
    own_server.kill()
    own_server.start()
    await until(lambda: len(begun) == 2)
    await redis.read("SPUBLISH", "one", "a")
    await until(lambda: heard == ["a"])
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await redis.close()


async def test_calls_that_wait_when_the_way_is_closed_are_unavailable(tmp_path: Path) -> None:
    """They must not look for a server forever."""
    redis = Redis(f"unix://{tmp_path}/none.sock")
    calls = [asyncio.create_task(redis.read("PING")), asyncio.create_task(redis.link_to("a"))]
    await until(lambda: bool(redis.trouble))
    await redis.close()
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, Unavailable) for answer in answers] == [True, True]


async def test_no_redis_at_all_is_unavailable(tmp_path: Path) -> None:
    redis = Redis(f"unix://{tmp_path}/none.sock", timeout_s=0.1)
    with pytest.raises(Unavailable):
        await redis.read("PING")
    await redis.close()
