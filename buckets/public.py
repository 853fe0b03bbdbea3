"""The public names of the machine, as `buckets` gives them out."""

from __future__ import annotations

from buckets.add_codec import Added
from buckets.clock import Clock, HeldClock
from buckets.durability.barrier import FSYNCED, LOCAL, REPLICATED, Durability
from buckets.durability.durable import Durable, DurablePool
from buckets.fsck.check import Fsck
from buckets.job import Cause, Job, NewJob, State, Tag
from buckets.meter import Meter
from buckets.notifier import Notifier
from buckets.pool import Moved, Pool
from buckets.pop_search import Popped
from buckets.redis.client import Redis
from buckets.redis.link import Sent
from buckets.timers.locks import Locks
from buckets.timers.members import Members
from buckets.timers.sweep import Sweep
from buckets.timers.timer import Timer
from buckets.topics import Bounds, Stats, Topic, Topics
from buckets.waiting import Waiting
from buckets.walk import Page, Place, Purged, Walk

__all__ = [
    "FSYNCED",
    "LOCAL",
    "REPLICATED",
    "Added",
    "Bounds",
    "Cause",
    "Clock",
    "Durability",
    "Durable",
    "DurablePool",
    "Fsck",
    "HeldClock",
    "Job",
    "Locks",
    "Members",
    "Meter",
    "Moved",
    "NewJob",
    "Notifier",
    "Page",
    "Place",
    "Pool",
    "Popped",
    "Purged",
    "Redis",
    "Sent",
    "State",
    "Stats",
    "Sweep",
    "Tag",
    "Timer",
    "Topic",
    "Topics",
    "Waiting",
    "Walk",
]
