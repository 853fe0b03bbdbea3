"""jobqueue.access.grants: what the bearer of a token may do, as far as the request tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import Raw

from buckets.errors import JobQueueError, Unavailable
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.access.grants import Grant
from jobqueue.access.rates import Quotas
from jobqueue.errors import Forbidden, TooFast
from jobqueue.schema import inner, params
from tests.jobqueue.access.records import record

_LARGEST = 100  # bytes of a body


def grant(*rights: str, **fields: Any) -> Grant:
    return Grant(record(*rights, **fields), "owner")


def limited(pool: Pool, *rights: str, **fields: Any) -> Grant:
    """A grant with rates."""
    given = record(*rights, **fields)
    return Grant(given, "owner", Quotas(pool, _LARGEST, lambda: None).of(given))


def add(topic: str = "mail", body: str = "1", **fields: Any) -> params.Add:
    return params.Add(topic=topic, body=Raw(body.encode()), **fields)


def told(fault: JobQueueError | None) -> tuple[str | None, str | None] | None:
    """The right and the topic that a refusal names."""
    return (fault.right, fault.topic) if isinstance(fault, Forbidden) else None


async def test_a_token_of_own_ids_adds_only_ids_that_begin_with_the_topic() -> None:
    given = grant("produce", own_ids=True)
    commands = [add(id="mail:1"), add(), add(id="1"), add(id="mails:1")]
    checked = await given.checked(commands)
    assert [isinstance(each, Forbidden) for each in checked] == [False, False, True, True]
    assert [given.admits([each]) for each in commands] == [True, True, False, False]


def test_bodies_are_shown_only_by_name_or_to_an_admin() -> None:
    for command in (params.Get(id="a", body=True), params.Peek(topic="t", body=True), inner.Get(id="a")):
        assert told(grant("look").fault(command)) == ("bodies", None)
        assert grant("look", "bodies").fault(command) is None and grant("admin").fault(command) is None
    for command in (params.Get(id="a"), params.Peek(topic="t", body=False), inner.Get(id="a", body=False)):
        assert grant("look").fault(command) is None


def test_a_finish_that_may_settle_what_was_never_delivered_is_a_delete_too() -> None:
    assert grant("produce").fault(inner.Finish(id="a", settles=True)) is None
    assert told(grant("produce").fault(inner.Finish(id="a"))) == ("consume", None)


async def test_behind_the_first_that_is_too_fast_only_what_frees_work_is_carried_out(live_pool: Pool) -> None:
    given = limited(live_pool, "produce", "consume", rate=1, burst=10)
    checked = await given.checked([*[add()] * 12, params.Finish(id="a"), add(), params.Pop(topic="t")])
    kinds = [type(each) for each in checked]
    assert kinds == [*[params.Add] * 9, *[TooFast] * 3, params.Finish, TooFast, TooFast]  # the finish counts, too
    assert checked[9].retry_after >= 1
    assert given.counts == {"ok": 10, "forbidden": 0, "too_fast": 5}


async def test_a_refused_command_spends_nothing(live_pool: Pool) -> None:
    given = limited(live_pool, "produce", rate=1, burst=10)
    await given.checked([params.Pop(topic="t")] * 50)
    checked = await given.checked([add()] * 11)
    assert [type(each) for each in checked] == [*[params.Add] * 10, TooFast]


async def test_permits_of_the_fast_path_come_back_when_the_commands_are_checked_again(live_pool: Pool) -> None:
    given = limited(live_pool, "produce", rate=100, burst=100, bytes=1000)
    assert not given.admits([add()])  # nothing is leased yet
    await given.checked([add()])  # leases ten permits
    for _ in range(20):
        assert given.admits([add()])
        given.take_back([add()])
    assert given.counts["ok"] == 1
    assert [given.admits([add()]) for _ in range(10)] == [*[True] * 9, False]
    assert given.counts == {"ok": 10, "forbidden": 0, "too_fast": 0}


async def test_where_nobody_knows_the_rate_only_what_frees_work_is_carried_out(own_pool: Pool) -> None:
    given = limited(own_pool, "produce", "consume", rate=1, burst=10)
    checked = await given.checked([add(), params.Finish(id="a"), add()])
    assert [type(each) for each in checked] == [Unavailable, params.Finish, Unavailable]


async def test_a_pop_that_would_be_one_too_many_to_wait_is_refused_and_others_pass() -> None:
    full = Grant(record("consume", "produce", waits=1), "owner", None, lambda grant: False)
    waiting = params.Pop(topic="t", wait=5)
    assert not full.admits([waiting])
    checked = await full.checked([waiting, params.Pop(topic="t"), add()])
    assert [type(each) for each in checked] == [TooFast, params.Pop, params.Add]
    assert full.admits([params.Pop(topic="t")])


@pytest.fixture
async def own_pool(own_server: Any) -> Any:
    """A pool whose Redis is gone."""
    redis = Redis(own_server.url, timeout_s=1.0)
    pool = await Pool.open(redis)
    own_server.kill()
    yield pool
    await pool.close()
    await redis.close()


def test_what_is_taken_back_leaves_the_permits_as_they_were() -> None:
    quota = Counted()
    given = Grant(record("produce", "consume"), "owner", quota)
    commands = [add(), params.Finish(id="a"), params.Finish(id="b")]
    assert given.admits(commands)
    assert (quota.spent, quota.owed) == (1, 2)
    given.take_back(commands)
    assert (quota.spent, quota.owed) == (0, 0)


class Counted:
    """A quota that counts."""

    counts_bytes = False
    spent = owed = 0

    def spend(self, count: int, size: int = 0) -> bool:
        self.spent += count
        return True

    def refund(self, count: int, size: int = 0) -> None:
        self.spent -= count

    def owe(self, count: int) -> None:
        self.owed += count

    async def take(self, sizes: Sequence[int]) -> tuple[int, float]:
        return len(sizes), 0.0
