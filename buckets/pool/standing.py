"""Where a job is, and why: what Redis knows of the job at one moment, for `explain`."""

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
"""The most entries of a ready list that are counted."""
_JOB, _UNREADABLE, _ASIDE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job is. Fields that do not apply to its state are None."""

    now_us: int
    shard: int
    is_told: bool
    """Whether the shard keeps events."""
    job: Job | None
    """The job or its tombstone, without its body."""
    is_unreadable: bool = False
    is_aside: bool = False
    timer: str | None = None
    """Delayed or reserved: the token of the instance that runs its timer, or empty if none does."""
    is_listed: bool | None = None
    """Delayed or reserved: whether the job is in its bucket."""
    behind: int | None = None
    """Delayed or reserved, if its time has come: how many entries of its bucket are due at the same time or earlier."""
    paused_us: int | None = None
    """Delayed or ready: us until its topic resumes, -1 if it is not paused, or -2 if only a resume ends the pause."""
    before: int | None = None
    """Ready: entries of its list before it, or -1 if it is not among the first MOST_BEFORE."""
    above: int | None = None
    """Ready: entries of the topic's lists of higher priority."""
    ahead: int | None = None
    """Ready, but its key is busy: how many jobs of the key are before it or hold the key."""
    holder: str | None = None
    """Then also the id of a job that holds the key, or empty for none."""
    opens_ms: int | None = None
    """And when the rate of the key allows its next delivery, if that is what the job waits for."""
    newer: int | None = None
    """Dead: dead letters of its topic that died later."""


async def closed(shards: Shards, topic: str) -> Closed | None:
    """The limit that holds back the ready jobs of a topic now, or None. Raises Unavailable."""
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
    """A number, or 0 for another program's data."""
    return int(raw) if raw is not None and raw.isdigit() else 0


async def standing(shards: Shards, job_id: str, within: str = "") -> Standing:
    """Where a job is; a job whose topic is not within reach counts as unknown. Raises Unavailable."""
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
        ahead=told.get("ahead"),
        holder=told["holder"].decode("utf-8", "replace") if "holder" in told else None,
        opens_ms=told.get("opens"),
        newer=told.get("newer"),
    )
