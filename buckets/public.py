"""The public names of the engine, which `buckets` loads on first use."""

from __future__ import annotations

from buckets.clock import Clock, HeldClock, SteppedClock
from buckets.durability.barrier import FSYNCED, LOCAL, REPLICATED, Durability
from buckets.durability.durable import Durable, DurablePool
from buckets.fsck.check import Fsck
from buckets.job import Cause, Job, NewJob, State, Tag
from buckets.meter import Meter
from buckets.notifier import Notifier
from buckets.pollers import Pollers, Polling, Pollings
from buckets.pool.add_codec import Added
from buckets.pool.lanes import Sent
from buckets.pool.numbers import LARGEST_NUMBER, Numbers
from buckets.pool.pool import Moved, Pool
from buckets.pool.pop_search import Popped
from buckets.pool.stepped_pool import QueuedPool
from buckets.redis.client import Redis
from buckets.timers.awake import Awake
from buckets.timers.held_time import HeldTime
from buckets.timers.locks import Locks
from buckets.timers.members import Members
from buckets.timers.sweep import Sweep
from buckets.timers.timer import Timer
from buckets.topics import Bounds, Stats, Topic, Topics, TopicStatus
from buckets.waiting import Waiting
from buckets.walk import Page, Position, Purged, Walk

__all__ = [
    "FSYNCED",
    "LARGEST_NUMBER",
    "LOCAL",
    "REPLICATED",
    "Added",
    "Awake",
    "Bounds",
    "Cause",
    "Clock",
    "Durability",
    "Durable",
    "DurablePool",
    "Fsck",
    "HeldClock",
    "HeldTime",
    "Job",
    "Locks",
    "Members",
    "Meter",
    "Moved",
    "NewJob",
    "Notifier",
    "Numbers",
    "Page",
    "Pollers",
    "Polling",
    "Pollings",
    "Pool",
    "Popped",
    "Position",
    "Purged",
    "QueuedPool",
    "Redis",
    "Sent",
    "State",
    "Stats",
    "SteppedClock",
    "Sweep",
    "Tag",
    "Timer",
    "Topic",
    "TopicStatus",
    "Topics",
    "Waiting",
    "Walk",
]
