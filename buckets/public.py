"""The public names of the engine, which `buckets` loads on first use."""

from __future__ import annotations

from buckets.clock import Clock, HeldClock, SteppedClock
from buckets.durable import FSYNCED, LOCAL, REPLICATED, Durability, Durable, DurablePool
from buckets.fsck.check import Fsck
from buckets.job import Cause, Job, NewJob, State, Tag, later_ms
from buckets.meter import Meter
from buckets.operations.candidates import Candidates
from buckets.operations.carrying_out import CarryingOut
from buckets.operations.runner import Runner
from buckets.operations.store import Asked, Filter, Operation, Operations
from buckets.pool.codec import Added, Prepared, Shape
from buckets.pool.lanes import Sent
from buckets.pool.limits import Closed, Limit
from buckets.pool.numbers import LARGEST_NUMBER, Numbers
from buckets.pool.pool import Moved, Pool
from buckets.pool.pop_search import Ask, Popped, ask_for
from buckets.pool.sleepers import Waiter
from buckets.redis.client import Redis
from buckets.schedules.occurrences import Occurrences, Plan, Planner, Time
from buckets.schedules.record import Schedule
from buckets.schedules.schedules import Schedules, Seen
from buckets.timers.cards import About, Card, Instance, read_instances
from buckets.timers.held_time import HeldTime, QueuedPool
from buckets.timers.locks import Locks
from buckets.timers.members import Members
from buckets.timers.slicing import Slicing
from buckets.timers.sweep import Sweep
from buckets.timers.timer import Awake, Timer
from buckets.topics.figures import Figures, Forecast, read_forecast
from buckets.topics.topics import Bin, Bounds, Stats, Topic, Topics, TopicStatus
from buckets.topics.walk import Page, Position, Purged, Walk
from buckets.waiting.notifier import Notifier
from buckets.waiting.pollers import Client, Poller, Pollers, Polling, Pollings
from buckets.waiting.waiting import Waiting

__all__ = [
    "FSYNCED",
    "LARGEST_NUMBER",
    "LOCAL",
    "REPLICATED",
    "About",
    "Added",
    "Ask",
    "Asked",
    "Awake",
    "Bin",
    "Bounds",
    "Candidates",
    "Card",
    "CarryingOut",
    "Cause",
    "Client",
    "Clock",
    "Closed",
    "Durability",
    "Durable",
    "DurablePool",
    "Figures",
    "Filter",
    "Forecast",
    "Fsck",
    "HeldClock",
    "HeldTime",
    "Instance",
    "Job",
    "Limit",
    "Locks",
    "Members",
    "Meter",
    "Moved",
    "NewJob",
    "Notifier",
    "Numbers",
    "Occurrences",
    "Operation",
    "Operations",
    "Page",
    "Plan",
    "Planner",
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
    "Runner",
    "Schedule",
    "Schedules",
    "Seen",
    "Sent",
    "Shape",
    "Slicing",
    "State",
    "Stats",
    "SteppedClock",
    "Sweep",
    "Tag",
    "Time",
    "Timer",
    "Topic",
    "TopicStatus",
    "Topics",
    "Waiter",
    "Waiting",
    "Walk",
    "ask_for",
    "later_ms",
    "read_forecast",
    "read_instances",
]
