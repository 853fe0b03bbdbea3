"""Where a job stands, and what keeps it there: what Redis knows at one moment, for `explain`."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from buckets.job import Job, State
from buckets.keys import shard_of
from buckets.pool.limits import Closed
from buckets.record import unpack
from buckets.shards import Shards

MOST_BEFORE = 10_000
"""Up to so many entries of a ready list are counted."""
_JOB, _UNREADABLE, _ASIDE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands. What its state does not ask for is None."""

    now_us: int
    shard: int
    is_told: bool
    """Whether the shard keeps events."""
    job: Job | None
    """The job or its tombstone, without its body."""
    is_unreadable: bool = False
    is_aside: bool = False
    timer: str | None = None
    """Delayed or reserved: the token of the instance that runs its timer; empty: none does."""
    is_listed: bool | None = None
    """Delayed or reserved: whether its bucket has it."""
    behind: int | None = None
    """Delayed or reserved, and its time has come: how many entries of its bucket are due with it or before."""
    paused_us: int | None = None
    """Delayed or ready: us until its topic resumes; -1: it is not paused, -2: only when somebody resumes it."""
    before: int | None = None
    """Ready: entries of its list before it; -1: at least MOST_BEFORE."""
    above: int | None = None
    """Ready: entries of the topic's lists of higher priority."""
    newer: int | None = None
    """Dead: dead letters of its topic that died later."""


async def closed(shards: Shards, topic: str) -> Closed | None:
    """The limit that keeps the ready jobs of a topic back now, or None. Raises Unavailable."""
    limit = shards.limits.get(topic)
    if limit is None:
        return None
    home = shards.keys[shard_of(topic, len(shards.keys))]
    full_at, reserved, now_us = await asyncio.gather(
        shards.redis.read("GET", home.permits(topic)),
        shards.redis.read("HGET", home.counts(topic), State.RESERVED.word),
        shards.now_us(),
    )
    if limit.concurrency and _number(reserved) >= limit.concurrency:
        return Closed(topic, "concurrency", 0)
    opens_us = math.ceil(_number(full_at) - now_us - (limit.burst - 1) * 1e6 / limit.rate) if limit.rate else 0
    return Closed(topic, "rate", opens_us) if opens_us > 0 else None


def _number(raw: bytes | None) -> int:
    """What another program wrote counts as nothing."""
    return int(raw) if raw is not None and raw.isdigit() else 0


async def standing(shards: Shards, job_id: str, within: str = "") -> Standing:
    """Where a job stands; one of a topic that is not within is not there. Raises Unavailable."""
    shard = shard_of(job_id, len(shards.keys))
    now_us, events, found, raw, *pairs = await shards.call(
        "explain", shard, now=shards.clock.now(), id=job_id, within=within, most=MOST_BEFORE
    )
    told = {name.decode(): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
    return Standing(
        now_us,
        shard,
        events > 0,
        unpack(job_id, raw) if found == _JOB else None,
        is_unreadable=found == _UNREADABLE,
        is_aside=found == _ASIDE,
        timer=told["timer"].decode("utf-8", "replace") if "timer" in told else None,
        is_listed=bool(told["listed"]) if "listed" in told else None,
        behind=told.get("behind"),
        paused_us=told.get("paused"),
        before=told.get("before"),
        above=told.get("above"),
        newer=told.get("newer"),
    )
