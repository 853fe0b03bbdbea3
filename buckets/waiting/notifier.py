"""The notifier: the subscriptions through which Redis notifies this process, and the callbacks for its messages.

There is one subscription per shard, to its bell; subscriptions on the same server share a connection. Scripts publish:

    ready n topic   a ready list of the topic was empty and got n jobs
    due n           bucket n got an entry that is due soon, and before all others
    free            an instance released locks of timers
    aside id        a record that could not be read was set aside
    tokens version  records of tokens were changed
    operation       an operation was planned, or has another state

Processes publish `leave worker`, which ends all waiting pops of this worker, or `leave_owned owner worker`, which ends
only those of an owner. The worker's name is the rest of the line.

Timers wait for the events of `alarm`, locks for those of `free`; other code registers a `Listener`. Pub/sub may lose
messages, so every event is set, and every listener called, whenever a subscription is renewed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from buckets.errors import JobQueueError
from buckets.redis.outage import Outage
from buckets.shards import Shards

log = logging.getLogger(__name__)

_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 0.5  # before a lost subscription is renewed
_STANDS_S = 2.0  # after this long, a subscription's outage is over: on a read-only replica it is lost again and again


def _ignore(*_: object) -> None:
    """The callback for messages that a listener does not need."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks of one listener; none may block."""

    ready: Callable[[int, str, int], None] = _ignore
    """Called with a shard, a topic that has ready jobs there, and how many of them are new."""
    leave: Callable[[str, str | None], None] = _ignore
    """Called with a worker whose waiting pops must end now, and their owner, or None for any owner."""
    tokens: Callable[[int], None] = _ignore
    """Called with the new version of the records of tokens."""
    operation: Callable[[], None] = _ignore
    """Called when there may be something to do for an operation."""
    subscribed: Callable[[int], None] = _ignore
    """Called with a shard whose subscription has begun; earlier messages may be lost."""
    lost: Callable[[int], None] = _ignore
    """Called with a shard whose subscription is lost."""


class Notifier:
    """The subscriptions of one namespace. `run` renews them."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._listeners: list[Listener] = []
        self._alarms: dict[tuple[int, int], asyncio.Event] = {}  # by shard and bucket
        self._free = [asyncio.Event() for _ in shards.keys]
        self._subscribed: set[int] = set()
        self._outages = [Outage(log, "bell.lost", "bell.found") for _ in shards.keys]
        self._ends: dict[int, asyncio.TimerHandle] = {}  # by shard, the timers that end outages
        self.connected = asyncio.Event()
        """Set while all subscriptions are active."""

    @property
    def hears(self) -> bool:
        """Whether the subscription of at least one shard is active; not of all, since masters of a Cluster may fail."""
        return bool(self._subscribed)

    def register(self, listener: Listener) -> None:
        """Call this listener from now on."""
        self._listeners.append(listener)

    def alarm(self, shard: int, bucket: int) -> asyncio.Event:
        """An event that is set when a bucket may have an entry earlier than any that the bucket's timer knows of."""
        return self._alarms.setdefault((shard, bucket), asyncio.Event())

    def free(self, shard: int) -> asyncio.Event:
        """An event that is set when locks of the shard may have become free."""
        return self._free[shard]

    async def run(self) -> None:
        """Listen to all shards until cancelled; a lost subscription is renewed."""
        async with asyncio.TaskGroup() as group:
            for shard in range(len(self._free)):
                group.create_task(self._listen(shard))

    async def _listen(self, shard: int) -> None:
        bell = self._shards.keys[shard].bell
        pause = _PAUSE_S
        while True:
            try:
                await self._shards.redis.listen(bell, partial(self.hear, shard), partial(self._connect, shard))
            except JobQueueError as error:
                self._outages[shard].begin(error, shard=shard)
            except Exception:
                log.exception("bell.failed", extra={"shard": shard})
            pause = _PAUSE_S if shard in self._subscribed else min(2 * pause, _LONGEST_PAUSE_S)
            self._disconnect(shard)
            await asyncio.sleep(pause)

    def _connect(self, shard: int) -> None:
        self._subscribed.add(shard)
        if self._outages[shard].is_on:
            end = partial(self._outages[shard].end, shard=shard)
            self._ends[shard] = asyncio.get_running_loop().call_later(_STANDS_S, end)
        if len(self._subscribed) == len(self._free):
            self.connected.set()
        self._free[shard].set()
        for (of, _), alarm in self._alarms.items():
            if of == shard:
                alarm.set()
        for listener in self._listeners:
            listener.subscribed(shard)

    def _disconnect(self, shard: int) -> None:
        self._subscribed.discard(shard)
        if end := self._ends.pop(shard, None):
            end.cancel()
        self.connected.clear()
        for listener in self._listeners:
            listener.lost(shard)

    def hear(self, shard: int, message: str) -> None:
        """Act on a message; messages that another program publishes on the channel do no harm."""
        try:
            self._act(shard, message)
        except ValueError:
            log.warning("bell.misheard", extra={"shard": shard, "length": len(message)})

    def _act(self, shard: int, message: str) -> None:
        kind, _, argument = message.partition(" ")
        if kind == "ready":
            number, _, topic = argument.partition(" ")
            jobs = int(number)
            for listener in self._listeners:
                listener.ready(shard, topic, jobs)
        elif kind == "due" and (shard, int(argument)) in self._alarms:
            self._alarms[shard, int(argument)].set()
        elif kind == "free":
            self._free[shard].set()
        elif kind == "aside":
            log.error("job.set_aside", extra={"id": argument, "shard": shard})
        elif kind == "operation":
            for listener in self._listeners:
                listener.operation()
        elif kind == "leave":
            self._tell_leave(argument, None)
        elif kind == "leave_owned":
            owner, _, worker = argument.partition(" ")
            self._tell_leave(worker, owner)
        elif kind == "tokens":
            version = int(argument)
            for listener in self._listeners:
                listener.tokens(version)

    def _tell_leave(self, worker: str, owner: str | None) -> None:
        for listener in self._listeners:
            listener.leave(worker, owner)

    async def leave(self, worker: str, owner: str | None) -> None:
        """Call the listeners of all processes with a worker that leaves: those of this process now, so that its next
        answers no longer list the worker. Raises Unavailable if other processes may not have been notified."""
        self._tell_leave(worker, owner)
        await self.publish(f"leave {worker}" if owner is None else f"leave_owned {owner} {worker}")

    async def publish(self, message: str) -> None:
        """Send a message to the notifiers of all processes, once: each listens to all shards. A process that is not
        connected misses it. Raises Unavailable."""
        await self._shards.redis.read("SPUBLISH", self._shards.keys[0].bell, message)
