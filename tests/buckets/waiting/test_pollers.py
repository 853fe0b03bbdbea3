"""buckets.waiting: who polls through which instance, with how many jobs in hand, and for how long that is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from buckets.errors import Unavailable
from buckets.job import NewJob
from buckets.pool.pool import Pool
from buckets.shards import MOST
from buckets.waiting import pollers as module
from buckets.waiting.notifier import Notifier
from buckets.waiting.pollers import Pollers, Polling
from tests.buckets.instances import sign


class Caller:
    """A client at an address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_connected = True


@pytest.fixture
async def pollers(pool: Pool) -> Pollers:
    """Those of a live instance."""
    return await instance(pool, "aa")


async def instance(pool: Pool, token: str) -> Pollers:
    await sign(pool, token)
    pollers = Pollers(pool, Notifier(pool), token)
    pollers.instance = f"host-{token}"
    return pollers


async def deliver(pool: Pool, pollers: Pollers, ids: Sequence[str], worker: str = "w") -> None:
    """Add jobs, and let a worker pop them through an instance."""
    await pool.add([NewJob(job_id, "t", b"1") for job_id in ids])
    poller = pollers.begin(worker, None, ["t"])
    pollers.end(poller, (await pool.pop(["t"], len(ids))).jobs)


async def rows(pollers: Pollers) -> list[Polling]:
    return (await pollers.read()).rows


async def hands(pollers: Pollers) -> dict[str, int]:
    """Jobs in hand by worker."""
    return {row.worker: row.jobs for row in await rows(pollers)}


async def test_a_waiting_pop_shows_its_worker_with_topics_instance_and_address(pool: Pool, pollers: Pollers) -> None:
    pollers.begin("w", Caller("10.0.0.1:5"), ["b", "a"])
    (row,) = await rows(pollers)
    assert (row.worker, row.topics, row.instance, row.client) == ("w", ["a", "b"], "host-aa", "10.0.0.1:5")
    assert (row.waiting, row.jobs) == (1, 0)
    assert 0 <= await pool.now_ms() - row.last <= await pool.now_ms() - row.since < 60_000


async def test_a_pop_without_a_worker_is_shown_by_its_address(pollers: Pollers) -> None:
    one, other = Caller("10.0.0.1:5"), Caller("10.0.0.1:6")
    for caller in (one, other, one):
        pollers.end(pollers.begin("", caller, ["t"]), [])
    assert sorted(row.worker for row in await rows(pollers)) == ["10.0.0.1:5", "10.0.0.1:6"]


async def test_clients_without_a_name_that_hung_up_make_room_for_workers(
    pollers: Pollers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that pops once per connection would fill the table in seconds."""
    monkeypatch.setattr(module, "MOST_ROWS", 3)
    nameless, other, named = Caller("10.0.0.1:5"), Caller("10.0.0.1:6"), Caller("10.0.0.1:7")
    for name, caller in (("", nameless), ("w", named)):
        pollers.end(pollers.begin(name, caller, ["t"]), [])
    nameless.is_connected = named.is_connected = False
    assert len(await rows(pollers)) == 2
    pollers.end(pollers.begin("", other, ["t"]), [])
    assert sorted(row.worker for row in await rows(pollers)) == ["10.0.0.1:6", "w"]


async def test_a_finish_that_was_refused_leaves_the_job_in_hand(pool: Pool, pollers: Pollers) -> None:
    await deliver(pool, pollers, "a")
    stale = [("a", 1)]
    pollers.finished(stale, await pool.finish(stale))
    assert await hands(pollers) == {"w": 1}


async def test_topics_in_another_order_are_the_same_worker_and_other_topics_another_row(pollers: Pollers) -> None:
    for topics in (["a", "b"], ["b", "a"], ["a"]):
        pollers.end(pollers.begin("w", None, topics), [])
    assert sorted(row.topics for row in await rows(pollers)) == [["a"], ["a", "b"]]


async def test_jobs_in_hand_are_those_delivered_here_and_not_finished(pool: Pool, pollers: Pollers) -> None:
    await deliver(pool, pollers, "abc")
    assert await hands(pollers) == {"w": 3}
    await pool.finish([("a", None)])
    pollers.finished([("a", None)], ["finished"])
    assert await hands(pollers) == {"w": 2}


@pytest.mark.parametrize("end", ["finish", "release", "bury", "delete"])
async def test_a_job_that_ended_through_another_instance_is_no_longer_in_hand(
    pool: Pool, pollers: Pollers, end: str
) -> None:
    await deliver(pool, pollers, "ab")
    if end == "finish":
        await pool.finish([("a", None)])
    elif end == "delete":
        await pool.delete(["a"])
    else:
        await getattr(pool, end)("a")
    assert await hands(pollers) == {"w": 1}


async def test_a_job_that_another_worker_has_now_is_in_that_ones_hand(pool: Pool, pollers: Pollers) -> None:
    other = await instance(pool, "bb")
    await deliver(pool, pollers, "a", "slow")
    await pool.release("a")
    poller = other.begin("quick", None, ["t"])
    other.end(poller, (await pool.pop(["t"])).jobs)
    await other.tick()
    assert await hands(pollers) == {"slow": 0, "quick": 1}


async def test_a_job_that_is_delivered_at_most_once_is_in_no_hand(pool: Pool, pollers: Pollers) -> None:
    await pool.add([NewJob("a", "t", b"1", ttr_ms=0)])
    pollers.end(pollers.begin("w", None, ["t"]), (await pool.pop(["t"])).jobs)
    assert await hands(pollers) == {"w": 0}


async def test_each_instance_knows_the_workers_of_all_live_ones(pool: Pool, pollers: Pollers) -> None:
    other = await instance(pool, "bb")
    pollers.begin("one", None, ["t"])
    other.begin("two", None, ["t"])
    await pollers.tick()
    found = await other.read()
    assert {row.worker: row.instance for row in found.rows} == {"one": "host-aa", "two": "host-bb"}
    assert found.polling() == {"t": 2}
    await pool.redis.read("ZREM", pool.keys[0].members, "aa")
    assert [row.worker for row in await rows(other)] == ["two"]


async def test_a_worker_that_polls_through_two_instances_counts_once(pool: Pool, pollers: Pollers) -> None:
    other = await instance(pool, "bb")
    for each in (pollers, other):
        each.begin("w", None, ["t", "u"])
        await each.tick()
    assert (await pollers.read()).polling() == {"t": 1, "u": 1}


async def test_a_client_that_hangs_up_disappears_at_once_unless_it_has_jobs(pool: Pool, pollers: Pollers) -> None:
    pollers.break_off(pollers.begin("gone", None, ["t"]), is_gone=True)
    pollers.break_off(pollers.begin("unlucky", None, ["t"]), is_gone=False)
    await deliver(pool, pollers, "a", "working")
    pollers.break_off(pollers.begin("working", None, ["t"]), is_gone=True)
    assert await hands(pollers) == {"unlucky": 0, "working": 1}


async def test_a_worker_that_leaves_disappears_once_its_jobs_have_ended(pool: Pool) -> None:
    notifier = Notifier(pool)
    await sign(pool, "aa")
    pollers = Pollers(pool, notifier, "aa")
    await deliver(pool, pollers, "a")
    await notifier.leave("w", None)  # heard by its own process without a subscription
    assert await hands(pollers) == {"w": 1}
    pollers.finished([("a", None)], ["finished"])
    assert await hands(pollers) == {}
    pollers.begin("w", None, ["t"])
    assert await hands(pollers) == {"w": 0}


async def test_of_two_workers_with_one_name_the_one_disappears_whose_owner_says_so(pool: Pool) -> None:
    notifier = Notifier(pool)
    await sign(pool, "aa")
    pollers = Pollers(pool, notifier, "aa")
    for topic, owner in (("t", "o1"), ("u", "o2")):
        pollers.end(pollers.begin("w", None, [topic], owner), [])
    notifier.hear(0, "leave_owned o1 w")
    assert [row.topics for row in (await pollers.read()).rows] == [["u"]]


async def test_a_worker_that_no_longer_polls_is_forgotten_but_not_one_that_waits_or_has_jobs(
    pool: Pool, pollers: Pollers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pollers.end(pollers.begin("idle", None, ["t"]), [])
    pollers.begin("parked", None, ["t"])
    await deliver(pool, pollers, "a", "busy")
    assert await hands(pollers) == {"idle": 0, "parked": 0, "busy": 1}
    monkeypatch.setattr(module, "GONE_S", 0.0)
    assert await hands(pollers) == {"parked": 0, "busy": 1}


async def test_beyond_a_bound_workers_are_only_summed_up(
    pool: Pool, pollers: Pollers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 3)
    for n in range(5):
        pollers.begin(f"w{n}", None, ["t"])
    await deliver(pool, pollers, "ab", "late")
    found = await pollers.read()
    assert len(found.rows) == 3
    assert (found.other_waiting, found.other_jobs) == (2, 2)


async def test_a_report_is_small_whatever_the_topics_are_called(pool: Pool, pollers: Pollers) -> None:
    for n in range(200):
        pollers.begin(f"w{n}", None, [f"{n}{m:02}".ljust(255, "x") for m in range(50)])
    found = await pollers.read()
    assert 0 < len(found.rows) < 200 and len(found.rows) + found.other_waiting == 200
    assert await pool.redis.read("STRLEN", pool.keys[0].workers("aa")) < 110_000


async def test_the_report_expires_and_is_removed_by_an_instance_that_stops(pool: Pool, pollers: Pollers) -> None:
    pollers.begin("w", None, ["t"])
    running = asyncio.create_task(pollers.run())
    await pollers.tick()
    key = pool.keys[0].workers("aa")
    assert 0 < await pool.redis.read("PTTL", key) <= module.KEPT_S * 1000
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await pool.redis.read("EXISTS", key) == 0


async def test_an_instance_without_workers_writes_nothing(pool: Pool, pollers: Pollers) -> None:
    await pollers.tick()
    assert await pool.redis.read("EXISTS", pool.keys[0].workers("aa")) == 0


@pytest.mark.parametrize("junk", ["", "no report", "1 {}", '1 {"instance": 1, "rows": [[1]]}', "1 []"])
async def test_what_another_program_wrote_in_its_place_hides_no_other_report(
    pool: Pool, pollers: Pollers, junk: str
) -> None:
    await sign(pool, "bb")
    await pool.redis.read("SET", pool.keys[0].workers("bb"), junk)
    await sign(pool, "cc")
    await pool.redis.read("HSET", pool.keys[0].workers("cc"), "a", "b")
    pollers.begin("w", None, ["t"])
    assert await hands(pollers) == {"w": 0}


async def test_a_shard_that_does_not_answer_is_waited_for_once(
    pool: Pool, pollers: Pollers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a report of many leases would take so long that the one before it expires."""
    await deliver(pool, pollers, list(map(str, range(2 * MOST))))
    asked = 0

    async def no_answer(*_: Any, **__: Any) -> None:
        nonlocal asked
        asked += 1
        raise Unavailable

    monkeypatch.setattr(pool, "call", no_answer)
    await pollers._check_leases()
    assert asked == 1
