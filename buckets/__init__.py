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

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from buckets.bell import Bell
    from buckets.clock import Clock, HeldClock
    from buckets.job import Cause, Job, NewJob, State, Tag
    from buckets.lock import Locks
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

_HOMES = {
    "bell": "Bell",
    "clock": "Clock HeldClock",
    "job": "Cause Job NewJob State Tag",
    "lock": "Locks",
    "pool": "Added Moved Pool Popped",
    "redis": "Redis",
    "sweep": "Sweep",
    "timer": "Timer",
    "topics": "Bounds Stats Topic Topics",
    "walk": "Page Place Purged Walk",
}

if not TYPE_CHECKING:  # a name that there is not is an error to mypy, not an Any

    def __getattr__(name: str) -> object:
        """A public name, whose module is loaded when it is first asked for: `buckets.errors` alone, which is all that a
        client on the command line needs, does not load redis-py and the scripts (0.2 s of processor time)."""
        for module, names in _HOMES.items():
            if name in names.split():
                globals()[name] = found = getattr(import_module(f"buckets.{module}"), name)
                return found
        raise AttributeError(f"module 'buckets' has no attribute {name!r}")
