"""A shard under check: how all parts of a check read it, repair it, and report.

The findings are faults by kind, with samples of where they are, and how many were repaired. The check of keys finds all
keys of the shard, and checks that each holds what its name allows.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from buckets.keys import FAMILIES, Keys
from buckets.pages import Pages
from buckets.pool.pool import Pool

SAMPLES = 5
_LONGEST_SAMPLE = 80

KINDS = {
    "meta": "the settings of a shard are missing or damaged",
    "spoilt": "a key holds something that its name does not allow",
    "unreadable": "a record cannot be read",
    "contradictory": "the state in a record contradicts the expiry of its key and its body",
    "endless": "the tombstone of a job never expires",
    "ending": "a live job would vanish: its key expires",
    "no_timer": "a job is in a bucket that no timer serves",
    "unindexed": "a job is missing from its bucket, from the dead letters, or among those of its key",
    "stuck": "a job waits for its key, which is free",
    "misdated": "the time of a job in its index differs from the one in its record",
    "unlisted": "a ready job is missing from its ready list",
    "orphan": "an entry of a bucket, a slice, the dead letters or a key, or a set of occurrences, matches no record",
    "unscheduled": "a schedule would have no occurrence at its next time: its entry in a bucket is missing or wrong",
    "miscounted": "the counts of a topic do not match its jobs",
    "idle_list": "a topic without ready jobs has ready lists",
    "unknown_topic": "a topic with counts is missing from the list of topics",
    "adrift": "jobs or schedules that a migration took away and put nowhere: run `jobqueue move` again",
    "misplaced": "a job or a schedule is in a shard that its id or its name does not belong to",
}


@dataclass(slots=True)
class Finding:
    """The faults of one kind: how many, how many of them were repaired, and where the first ones are."""

    found: int = 0
    samples: list[str] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)
    _repaired: set[int] = field(default_factory=set)

    def add(self, where: str, repaired: bool) -> None:
        """Record a fault; a fault that a second pass meets again counts once."""
        if hash(where) not in self._seen:
            self._seen.add(hash(where))
            self.found += 1
            if len(self.samples) < SAMPLES:
                self.samples.append(where if len(where) <= _LONGEST_SAMPLE else where[:_LONGEST_SAMPLE] + "…")
        if repaired:
            self._repaired.add(hash(where))

    @property
    def repaired(self) -> int:
        return len(self._repaired)


@dataclass(slots=True)
class Report:
    """The findings of one run. `foreign` (keys of other programs under our tag) and `aside` (the number of things that
    were set aside, now or earlier, and wait for an operator) are not faults. `unverified` are the topics that were
    never quiet enough to check their counts."""

    findings: dict[str, Finding] = field(default_factory=dict)
    jobs: int = 0
    topics: int = 0
    schedules: int = 0
    foreign: Finding = field(default_factory=Finding)
    aside: int = 0
    unverified: list[str] = field(default_factory=list)

    def find(self, kind: str, where: str, *, repaired: bool) -> None:
        """Record a fault of one of the KINDS."""
        assert kind in KINDS
        self.findings.setdefault(kind, Finding()).add(where, repaired)

    @property
    def faults(self) -> int:
        """How many faults are left."""
        return sum(finding.found - finding.repaired for finding in self.findings.values())


def shown(raw: bytes) -> str:
    """A name for people to read; only the length of a name that no user can have chosen, as it may contain anything."""
    text = raw.decode("utf-8", "replace")
    return text if text.isprintable() and "�" not in text and '"' not in text else f"<{len(raw)} bytes>"


PAGE = 64  # jobs per script: about 1 ms of Redis

Progress = Callable[[str, int], None]
"""Called with what is being checked, and how many of these have been checked so far."""


@dataclass(frozen=True, slots=True)
class CheckedShard:
    """One shard of a namespace, while it is checked."""

    pool: Pool
    number: int
    pages: Pages
    report: Report
    repair: bool
    """Whether to repair the faults that are found."""
    progress: Progress

    @property
    def keys(self) -> Keys:
        return self.pool.keys[self.number]

    @property
    def tag(self) -> bytes:
        """The prefix of all keys of the shard."""
        return self.keys.tag.encode()

    def key(self, family: str, name: bytes) -> bytes:
        """The key of a family (buckets/keys.py) with this name."""
        return self.tag + FAMILIES[family].encode() + name

    async def call(self, script: str, rest: Sequence[bytes] = (), **arguments: Any) -> Any:
        """Run a script on the shard, then leave Redis to others for a while."""
        now = self.pool.clock.now()
        return await self.pages.step(self.pool.call(script, self.number, rest, now=now, **arguments))

    def find(self, kind: str, where: str, *, repaired: bool | None = None) -> None:
        """Report a fault. `repaired`: whether it was repaired; None if that only depends on whether this check
        repairs."""
        self.report.find(kind, where, repaired=self.repair if repaired is None else repaired)


# What the keys of a family must be: the pattern of their names, and a Redis type or one of the words of set_aside.lua.
_FORMS = {
    "JOB": ("", "string"),
    "BUCKET": (r"\d{1,3}", "zset"),
    "SLICE": (r"\d{1,3}(?::\d{15}.*)?", "zset"),
    "READY": (r"\d:.+", "list"),
    "HOLDERS": (".+", "zset"),
    "BLOCKED": (".+", "zset"),
    "DEAD": (".+", "zset"),
    "COUNTS": (".+", "hash"),
    "DUE": (".+", "hash"),
    "TOPICS": ("", "zset"),
    "PAUSED": (".+", "moment"),
    "PERMITS": (".+", "lock"),
    "ASIDE": ("", "hash"),
    "EXPORTED": (r"\d+:[0-9a-f]+", "hash"),
    "SCHEDULES": ("", "hash"),
    "OCCURRENCES": (".+", "zset"),
    "EVENTS": ("", "stream"),
    "LOCK": (r"(?:\d{1,3}|journal)", "lock"),
    "MEMBERS": ("", "zset"),
    "CARDS": ("", "hash"),
    "WORKERS": ("[0-9a-f]+", "lock"),
    "COUNTER": ("", "moment"),
    "ALIAS": (r"\d{1,10}", "lock"),
    "BARRIER": ("", "lock"),
    "TOKENS": ("", "hash"),
    "RATE": (".+", "hash"),
    "ACTIONS": ("", "stream"),
    "OPERATIONS": ("", "zset"),
    "OPERATION": ("[0-9a-f]+", "hash"),
    "FIGURES": (r"\d+(?::.+)?", "hash"),
    "FIGURED": ("", "zset"),
}
_NAMES = [
    (re.compile((FAMILIES[family] + form).encode(), re.S), family, kind) for family, (form, kind) in _FORMS.items()
]


@dataclass(slots=True)
class FoundKeys:
    """The keys of a shard, apart from those of jobs."""

    names: defaultdict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """By family, the names without their prefix."""
    spoilt: set[bytes] = field(default_factory=set)
    """The keys whose content is not what it should be, without the shard's tag."""

    @property
    def topics(self) -> set[bytes]:
        """The topics that have counts, a histogram, or ready lists."""
        lists = [name.partition(b":")[2] for name in self.names["READY"]]
        return {*self.names["COUNTS"], *self.names["DUE"], *lists}


async def check_keys(shard: CheckedShard) -> FoundKeys:
    """Find the keys of a shard; a repair sets spoilt keys aside."""
    shard.progress("keys", 0)
    found = FoundKeys()
    async for page in shard.pages.keys(f"{shard.keys.tag}*"):
        names = [key.removeprefix(shard.tag) for key in page]
        await asyncio.gather(*(_check_key(shard, found, name) for name in names if not name.startswith(b"j:")))
    return found


async def _check_key(shard: CheckedShard, found: FoundKeys, name: bytes) -> None:
    family, wanted = next(((each, kind) for form, each, kind in _NAMES if form.fullmatch(name)), ("", ""))
    if name == b"meta":
        return
    if not family:
        shard.report.foreign.add(shown(shard.tag + name), False)
    elif await _is_spoilt(shard, shard.tag + name, wanted):
        set_aside = shard.repair and await shard.pool.call("set_aside", shard.number, suffix=name, wanted=wanted)
        shard.find("spoilt", shown(shard.tag + name), repaired=bool(set_aside))
        found.spoilt |= set() if set_aside else {name}
    else:
        found.names[family].append(name.removeprefix(FAMILIES[family].encode()))


async def _is_spoilt(shard: CheckedShard, key: bytes, wanted: str) -> bool:
    read = shard.pool.redis.read
    kind: str = (await read("TYPE", key)).decode()
    if kind == "none":
        return False
    if kind == "string" and wanted == "moment":
        return re.fullmatch(rb"\d+", await read("GET", key) or b"0") is None
    if kind == "string" and wanted == "lock":
        return bool(await read("PTTL", key) == -1)
    return kind != wanted
