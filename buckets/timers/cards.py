"""Cards: what each live instance reports about itself, and the timers that it holds.

An instance writes its card once it is on the list of members (members.py), and again whenever it holds other timers.
The script that removes the instance from the list also removes its card. Nothing depends on a card: it is for people
who inspect a service of several processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from buckets.errors import JobQueueError
from buckets.namespace import FORMAT
from buckets.shards import Shards
from buckets.timers.locks import Locks
from buckets.timers.members import Members
from buckets.waiting.pollers import name_in, waiting_in

log = logging.getLogger(__name__)

_SETTLED_S = 0.1  # wait after a change, as several timers change at once
_AGAIN_S = 1.0  # before a retry, after Redis did not answer

Timers = dict[int, list[int]]
"""The buckets whose timers an instance holds, by shard."""


@dataclass(slots=True)
class About:
    """What an instance reports about itself."""

    host: str
    pid: int
    worker: int | None
    """Its number in its supervisor, or None if it has no supervisor."""
    version: str
    name: str = ""
    """The name for people; empty until the instance listens."""
    started: int = 0
    """When it started, in ms since the epoch by Redis's clock."""
    format: int = FORMAT
    """The newest stored format that it knows."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A live instance as other instances see it."""

    signed: int
    """When it last signed the list of members, in ms since the epoch."""
    name: str
    """Empty if unknown."""
    about: About | None
    """None if it has written no card, because it has just started or its version writes none."""
    timers: Timers
    waiting: int
    """How many pops wait."""


class Card:
    """The card of this instance."""

    def __init__(self, shards: Shards, members: Members, locks: Sequence[Locks], about: About) -> None:
        """`about`: without `started`, which becomes the time of this call."""
        self._shards = shards
        self._members = members
        self._locks = locks
        self._about = about
        self._begun = asyncio.get_running_loop().time()

    def rename(self, name: str) -> None:
        """Change the name on the card."""
        self._about.name = name
        self._members.card_is_due.set()

    async def write(self) -> None:
        """Write the card, unless this instance is not on the list of members."""
        about = self._about
        if not about.started:
            age_s = asyncio.get_running_loop().time() - self._begun
            about.started = int((self._members.redis_s() - age_s) * 1000)
        text = json.dumps({**dataclasses.asdict(about), "timers": self._timers()})
        await self._shards.call("write_card", 0, token=self._members.token, card=text)

    def _timers(self) -> Timers:
        held = {lock.shard: [bucket for bucket, each in enumerate(lock.held) if each.is_set()] for lock in self._locks}
        return {shard: buckets for shard, buckets in held.items() if buckets}

    async def run(self) -> None:
        """Write the card whenever it is due, until cancelled."""
        due = self._members.card_is_due
        while True:
            await due.wait()
            await asyncio.sleep(_SETTLED_S)
            due.clear()
            try:
                await self.write()
            except JobQueueError:  # Redis is away, which others log
                due.set()
                await asyncio.sleep(_AGAIN_S)
            except Exception:
                log.exception("card.failed")


async def read_instances(shards: Shards, reaches: Callable[[str], bool] | None = None) -> list[Instance]:
    """The live instances, sorted by name, those without a name last. With `reaches`, only the pops of workers that ask
    for a topic for which `reaches` returns True are counted."""
    flat = await shards.call("read_instances", 0)
    return sorted(_instances(flat, reaches), key=lambda each: (not each.name, each.name, each.signed))


def _instances(flat: Sequence[bytes], reaches: Callable[[str], bool] | None) -> Iterator[Instance]:
    for signed, card, report in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        about, timers = _read(card)
        name = (about.name if about else "") or name_in(report)
        yield Instance(int(float(signed)), name, about, timers, waiting_in(report, reaches))


def _read(card: bytes) -> tuple[About | None, Timers]:
    """The content of a card; empty if another program wrote in its place."""
    with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError, OverflowError):
        found: dict[str, Any] = json.loads(card)
        worker = found["worker"]
        about = About(
            host=str(found["host"]),
            pid=int(found["pid"]),
            worker=None if worker is None else int(worker),
            version=str(found["version"]),
            name=str(found["name"]),
            started=int(found["started"]),
            format=int(found.get("format", 1)),
        )
        return about, {int(shard): [*map(int, buckets)] for shard, buckets in found["timers"].items()}
    return None, {}
