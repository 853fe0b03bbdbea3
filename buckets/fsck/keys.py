"""The check of keys: which there are, and whether each holds what its name allows."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from dataclasses import dataclass, field

from buckets.fsck.findings import shown
from buckets.fsck.shard import CheckedShard
from buckets.keys import FAMILIES

# What the keys of a family must be: the form of their names, and a type of Redis or one of the words of set_aside.lua.
_FORMS = {
    "JOB": ("", "string"),
    "BUCKET": (r"\d{1,3}", "zset"),
    "READY": (r"\d:.+", "list"),
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
    """By family, each without its prefix."""
    spoilt: set[bytes] = field(default_factory=set)
    """Those that cannot be read as what they should be, without the shard's tag."""

    @property
    def topics(self) -> set[bytes]:
        """The topics that have counts, a histogram, or ready lists."""
        lists = [name.partition(b":")[2] for name in self.names["READY"]]
        return {*self.names["COUNTS"], *self.names["DUE"], *lists}


async def check_keys(shard: CheckedShard) -> FoundKeys:
    """Find the keys of a shard; a spoilt one is set aside."""
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
