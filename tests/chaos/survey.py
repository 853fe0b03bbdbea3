"""The final reads of a queue, after Jepsen's: the state of each job, the counts, and fsck, as events."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from buckets import Fsck, Redis
from tests.chaos.history import History
from tests.chaos.judges.final_counts import LIVE
from tests.chaos.load.in_order import IN_ORDER
from tests.chaos.load.load import TOPICS
from tests.chaos.load.participant import Participant
from tests.chaos.load.wire import Wire

_NAME = "survey"
_PAGE = 200


async def drained(urls: list[str], history: History, within_s: float) -> bool:
    """Wait until no job is delayed, ready or reserved. Returns whether that happened in time."""
    wire = Wire(urls)
    asker = Participant("drain", history, wire, random.Random(0))
    try:
        async with asyncio.timeout(within_s):
            while True:
                (answer,) = await asker.insist({"command": "stats"})
                if answer["success"] and not sum(answer["counts"].get(state, 0) for state in LIVE):
                    return True
                await asyncio.sleep(0.1)
    except TimeoutError:
        return False
    finally:
        wire.give_up()


async def survey(urls: list[str], redis_url: str, ids: Iterable[str], history: History) -> None:
    """Read all jobs and topics. Nothing else may be running."""
    wire = Wire(urls)
    asker = Participant(_NAME, history, wire, random.Random(0))
    todo = [{"command": "get", "id": each} for each in ids]
    for start in range(0, len(todo), _PAGE):
        await asker.insist(*todo[start : start + _PAGE])
    await asker.insist(*({"command": "stats", "topic": topic} for topic in (*TOPICS, *IN_ORDER)))
    wire.give_up()
    op = history.invoke(_NAME, "fsck")
    faults = await _faults(redis_url)
    history.complete(_NAME, "ok", "fsck", op, faults=sum(faults.values()), counts=faults)


async def _faults(redis_url: str) -> dict[str, int]:
    """The number of faults of each kind."""
    redis = Redis(redis_url, timeout_s=20)
    try:
        check = await Fsck.open(redis, rest=0)
        return {kind: finding.found for kind, finding in (await check.run()).findings.items()}
    finally:
        await redis.close()
