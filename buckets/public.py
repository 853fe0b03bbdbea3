"""The public names of the machine, as `buckets` gives them out."""

from __future__ import annotations

from buckets.adding import Added
from buckets.bell import Bell
from buckets.clock import Clock, HeldClock
from buckets.durable import Durable, Want
from buckets.fence import FSYNCED, LOCAL, REPLICATED, Durability
from buckets.fsck import Fsck
from buckets.job import Cause, Job, NewJob, State, Tag
from buckets.lock import Locks
from buckets.meter import Meter
from buckets.pool import Moved, Pool
from buckets.redis import Redis
from buckets.roll import Roll
from buckets.search import Popped
from buckets.sweep import Sweep
from buckets.timer import Timer
from buckets.topics import Bounds, Stats, Topic, Topics
from buckets.walk import Page, Place, Purged, Walk

__all__ = [
    "FSYNCED",
    "LOCAL",
    "REPLICATED",
    "Added",
    "Bell",
    "Bounds",
    "Cause",
    "Clock",
    "Durability",
    "Durable",
    "Fsck",
    "HeldClock",
    "Job",
    "Locks",
    "Meter",
    "Moved",
    "NewJob",
    "Page",
    "Place",
    "Pool",
    "Popped",
    "Purged",
    "Redis",
    "Roll",
    "State",
    "Stats",
    "Sweep",
    "Tag",
    "Timer",
    "Topic",
    "Topics",
    "Walk",
    "Want",
]
