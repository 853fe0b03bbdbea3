"""The public names of the engine, which `buckets` loads on first use."""

from __future__ import annotations

from buckets.clock import Clock, HeldClock, SteppedClock
from buckets.durability.barrier import FSYNCED, LOCAL, REPLICATED, Durability
from buckets.durability.durable import Durable, DurablePool
from buckets.fsck.check import Fsck
from buckets.job import Cause, Job, NewJob, State, Tag
from buckets.meter import Meter
from buckets.notifier import Notifier
from buckets.pollers import Client, Poller, Pollers, Polling, Pollings
from buckets.pool.add_codec import Added, Prepared, Shape
from buckets.pool.lanes import Sent
from buckets.pool.numbers import LARGEST_NUMBER, Numbers
from buckets.pool.pool import Moved, Pool
from buckets.pool.pop_search import Ask, Popped, ask_for
from buckets.pool.sleepers import Waiter
from buckets.pool.stepped_pool import QueuedPool
from buckets.redis.client import Redis
from buckets.timers.awake import Awake
from buckets.timers.held_time import HeldTime
from buckets.timers.locks import Locks
from buckets.timers.members import Members
from buckets.timers.sweep import Sweep
from buckets.timers.timer import Timer
from buckets.topics.topics import Bounds, Stats, Topic, Topics, TopicStatus
from buckets.topics.walk import Page, Position, Purged, Walk
from buckets.waiting import Waiting

__all__ = [
    "FSYNCED",
    "LARGEST_NUMBER",
    "LOCAL",
    "REPLICATED",
    "Added",
    "Ask",
    "Awake",
    "Bounds",
    "Cause",
    "Client",
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
    "Poller",
    "Pollers",
    "Polling",
    "Pollings",
    "Pool",
    "Popped",
    "Position",
    "Prepared",
    "Purged",
    "QueuedPool",
    "Redis",
    "Sent",
    "Shape",
    "State",
    "Stats",
    "SteppedClock",
    "Sweep",
    "Tag",
    "Timer",
    "Topic",
    "TopicStatus",
    "Topics",
    "Waiter",
    "Waiting",
    "Walk",
    "ask_for",
]
