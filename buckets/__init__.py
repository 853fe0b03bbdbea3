"""The machine: a delay queue in Redis, for any asyncio program.

                add delay=0
        add  ──────────────────────►┐
         │                          ▼        pop
         └──► delayed ──(timer)──► ready ─────────► reserved ── finish ──► finished (tombstone)
                 ▲                  ▲ ▲                │ │
                 │                  │ └─── unpop ──────┘ └─ TTR over, or release, tries left: ready, or delayed by its
                 └──────────────────┼────────────────────     back-off
                                    │
                  kick ── dead ◄────┴── TTR over or release, no tries left; ttl over
        delete: from any live state to deleted (tombstone)     bury: reserved ─► dead     run: delayed ─► ready at once

Each arrow is one Lua script, so each happens whole or not at all. The pool's record is the only truth; buckets and
ready lists are indexes, and an entry that the record does not bear out is dropped.
"""

from buckets.bell import Bell
from buckets.clock import Clock, HeldClock
from buckets.job import Cause, Job, NewJob, State, Tag
from buckets.lock import Locks
from buckets.meter import Meter
from buckets.pool import Added, Moved, Pool, Popped
from buckets.redis import Redis
from buckets.sweep import Sweep
from buckets.timer import Timer
from buckets.topics import Bounds, Stats, Topic, Topics
from buckets.walk import Page, Place, Purged, Walk

__all__ = [
    "Added",
    "Bell",
    "Bounds",
    "Cause",
    "Clock",
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
    "State",
    "Stats",
    "Sweep",
    "Tag",
    "Timer",
    "Topic",
    "Topics",
    "Walk",
]
