"""The loop of a shard: every event once, in order, whatever happens between."""

from __future__ import annotations

from buckets.job import NewJob, State, Verb
from buckets.pool.pool import Pool
from tests.jobqueue.journal.reading.drained import Journal


async def test_the_events_of_a_life_are_in_sql_in_their_order(journal: Journal, live_pool: Pool) -> None:
    await live_pool.add([NewJob("a", "t", b'{"x": 1}')])
    popped = (await live_pool.pop(["t"], 1)).jobs
    await live_pool.finish([("a", popped[0].lease)])
    await journal.drain()
    events = await journal.events()
    assert [(row["id"], row["verb"], row["state_after"]) for row in events] == [
        ("a", Verb.ADD, State.READY),
        ("a", Verb.POP, State.RESERVED),
        ("a", Verb.FINISH, State.FINISHED),
    ]
    assert (await journal.jobs())["a"]["state"] == State.FINISHED
    assert await live_pool.redis.read("XLEN", live_pool.keys[0].events) == 0
