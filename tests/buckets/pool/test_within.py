"""buckets.pool.pool, within.lua: moves on condition of the job's topic and state."""

from __future__ import annotations

import fnmatch
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import AlreadyExists, NotFound, NotReserved, Refused, Reserved, StaleLease, WrongState
from buckets.job import NewJob, State
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.within import reaches
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, delete, finish, get, kick, state
from tests.buckets.lives import (
    Bring,
    dead,
    delayed_again,
    deleted,
    finished,
    never_popped_dead,
    never_popped_delayed,
    never_popped_ready,
    ready_again,
    reserved,
    unknown,
)

Move = Callable[[Pool, str], Awaitable[Any]]
MOVES: dict[str, tuple[Bring, Move]] = {
    "finish": (reserved, lambda pool, within: finish(pool, "a", None, within)),
    "settle": (never_popped_ready, lambda pool, within: finish(pool, "a", None, within, settles=True)),
    "delete": (reserved, lambda pool, within: delete(pool, "a", within)),
    "touch": (reserved, lambda pool, within: pool.touch("a", within=within)),
    "release": (reserved, lambda pool, within: pool.release("a", within=within)),
    "bury": (reserved, lambda pool, within: pool.bury("a", within=within)),
    "kick": (dead, lambda pool, within: kick(pool, "a", within)),
    "run": (never_popped_delayed, lambda pool, within: pool.run("a", within)),
    "take": (ready_again, lambda pool, within: pool.take("a", within=within)),
}
STATES: list[Bring] = [
    *(never_popped_delayed, never_popped_ready, never_popped_dead, delayed_again, ready_again),
    *(reserved, dead, finished, deleted),
]


async def test_a_job_of_the_right_topic_is_moved(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for within, name in itertools.product(("", "t", "*", "t*"), MOVES):
        with subtests.test(within=within, name=name):
            pool = await new_pool()
            bring, move = MOVES[name]
            await bring(pool, clock)
            clock.advance(1)
            before = await get(pool, "a")
            await move(pool, within)
            assert await get(pool, "a") != before
            await check_books(redis, pool)


@pytest.mark.parametrize("bring", STATES)
async def test_a_job_of_another_topic_does_not_exist_for_the_caller(
    subtests: pytest.Subtests, pool: Pool, clock: HeldClock, bring: Bring
) -> None:
    await bring(pool, clock)
    before = await get(pool, "a")
    for within in ("u", "tt", "T", "u*", "tt*", "*u", "??", "u x*", "*\nu", "u\nt"):
        with subtests.test(within=within):
            assert await pool.get("a", within) is None
            for name, (_, move) in MOVES.items():
                with pytest.raises(NotFound) as refused:
                    await move(pool, within)
                assert (refused.value.state, str(refused.value)) == (None, str(NotFound())), name
                assert await pool.get("a") == before, name


async def test_a_pattern_knows_only_star_and_question_mark(pool: Pool) -> None:
    await add(pool, "a", "im.x.%25")
    for within in ("im.*", "*25", "im*%25", "im?x?%25", "no im.x*", "?m.*\n*%25", "im.x.%25"):
        assert await pool.get("a", within), within
    for within in ("im%.*", "i.*", "im.[^x]*", "im.x.%25?", "im.x.%25.", "no i?", "im.*\nno", "(im)*", "im-*", "^im*"):
        assert await pool.get("a", within) is None, within


async def test_two_parts_of_a_pattern_do_not_match_the_same_characters(pool: Pool) -> None:
    await add(pool, "a", "aba")
    assert await pool.get("a", "*ab*a*")
    for within in ("*ab*ba*", "*a*b*ba*", "ab*ba", "aba*a", "*aba*a"):
        assert await pool.get("a", within) is None, within
        assert not reaches(within, "aba"), within


async def test_scripts_and_the_service_agree_on_what_is_within(pool: Pool) -> None:
    dice = random.Random(7)
    topics = {"".join(dice.choices("ab%.-+", k=dice.randrange(1, 6))) for _ in range(40)}
    await pool.add([NewJob(topic, topic, b"") for topic in topics])
    for _ in range(150):
        lists = [[dice.choices("ab%.-+**?", k=dice.randrange(1, 6)) for _ in range(dice.randrange(1, 4))] for _ in "12"]
        within = "\n".join(" ".join(map("".join, each)) for each in lists[: dice.randrange(1, 3)])
        found = {topic for topic in topics if await pool.get(topic, within)}
        assert found == {topic for topic in topics if reaches(within, topic)}, within


# What a settle answers: without a lease, with the newest, with an older one.
SETTLE: list[tuple[Bring, list[str | type[Refused]]]] = [
    (reserved, ["finished", "finished", StaleLease]),
    (delayed_again, ["finished", "finished", StaleLease]),
    (ready_again, ["finished", "finished", StaleLease]),
    (dead, ["finished", "finished", StaleLease]),
    (never_popped_delayed, ["deleted", "deleted", "deleted"]),
    (never_popped_ready, ["deleted", "deleted", "deleted"]),
    (never_popped_dead, ["deleted", "deleted", "deleted"]),
    (finished, ["finished", "finished", "finished"]),
    (deleted, ["deleted", "deleted", "deleted"]),
    (unknown, [NotFound, NotFound, NotFound]),
]


async def test_to_settle_finishes_what_was_delivered_and_deletes_the_rest(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for column, (bring, answers) in itertools.product((0, 1, 2), SETTLE):
        with subtests.test(column=column, bring=bring.__name__):
            pool = await new_pool()
            newest, older = await bring(pool, clock)
            lease = (None, newest, older)[column]
            expected = answers[column]
            if isinstance(expected, str):
                for _ in range(2):  # an answer that was lost is given again
                    assert await finish(pool, "a", lease, "t", settles=True) == expected
                    assert await state(pool, "a") == expected
            else:
                before = await pool.get("a")
                with pytest.raises(expected):
                    await finish(pool, "a", lease, "t", settles=True)
                assert await pool.get("a") == before
            await check_books(redis, pool)


async def test_a_delete_spares_the_states_that_it_is_given(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for bring in STATES:
        with subtests.test(bring=bring.__name__):
            pool = await new_pool()
            await bring(pool, clock)
            before = await get(pool, "a")
            others = [each for each in State if each is not before.state]
            for spares in ([before.state], list(State)):
                with pytest.raises(Reserved if before.state is State.RESERVED else WrongState) as refused:
                    await delete(pool, "a", "t", spares)
                assert refused.value.state == before.state.word
                assert await get(pool, "a") == before
            if before.state is State.FINISHED:
                with pytest.raises(WrongState):
                    await delete(pool, "a", "t", others)
            else:
                assert await delete(pool, "a", "t", others) == before.state.word
                assert await state(pool, "a") == "deleted"
                assert await delete(pool, "a", "t") == "deleted"
            await check_books(redis, pool)


async def test_a_finish_within_without_settling_does_not_end_what_nobody_had(pool: Pool) -> None:
    await add(pool, "a")
    with pytest.raises(NotReserved):
        await finish(pool, "a", None, "t")
    assert await state(pool, "a") == "ready"


@pytest.mark.parametrize("bring", [each for each in STATES if each is not unknown])
async def test_an_add_never_touches_or_reveals_a_job_of_a_topic_out_of_reach(
    subtests: pytest.Subtests, redis: Redis, pool: Pool, clock: HeldClock, bring: Bring
) -> None:
    await bring(pool, clock)
    before = await pool.get("a")
    for if_exists, body in itertools.product(("keep", "reject", "renew", "replace", "later", "sooner"), (b"1", b"")):
        with subtests.test(if_exists=if_exists, body=body):
            (refused,) = await pool.add([NewJob("a", "mine", body, if_exists=if_exists)], "mine other*")
            assert isinstance(refused, AlreadyExists) and refused.state is None
            (group,) = await pool.add_groups([[NewJob("a", "mine", body, if_exists=if_exists)]], "mine")
            assert isinstance(group, AlreadyExists) and group.state is None
            assert await pool.get("a") == before
            await check_books(redis, pool)


async def test_jobs_of_one_call_are_finished_and_deleted_each_by_its_own_topic(pool: Pool, clock: HeldClock) -> None:
    await pool.add([NewJob(name, name[0], b"") for name in ("t1", "u1", "t2", "u2")])
    await pool.pop(["t", "u"], 4)
    finished_ones = await pool.finish([("t1", None), ("u1", None), ("none", None)], within="t")
    assert finished_ones[0] == "finished" and [type(each) for each in finished_ones[1:]] == [NotFound, NotFound]
    deleted_ones = await pool.delete(["u2", "t2"], "t")
    assert isinstance(deleted_ones[0], NotFound) and deleted_ones[1] == "reserved"
    assert [await state(pool, name) for name in ("u1", "u2")] == ["reserved", "reserved"]


@pytest.mark.timeout(20)
async def test_a_pattern_with_many_stars_takes_no_time(pool: Pool) -> None:
    within, topic = "a*" * 120 + "b", "a" * 250
    assert not reaches(within, topic)
    await pool.add([NewJob("id", topic, b"1")])
    assert await pool.get("id", within) is None
    assert await pool.get("id", within[:-1])


def test_a_pattern_matches_what_those_of_file_names_match() -> None:
    chance = random.Random(1)
    for _ in range(5_000):
        topic = "".join(chance.choices("ab-", k=chance.randint(1, 8)))
        within = "".join(chance.choices("ab-*?", k=chance.randint(1, 7)))
        assert reaches(within, topic) == fnmatch.fnmatchcase(topic, within), (within, topic)
