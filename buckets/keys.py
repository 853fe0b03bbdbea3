"""The keys in Redis: built here and nowhere else.

All keys of a shard share the hash tag `{namespace:shard}`, so that each script is legal on a Cluster. Scripts
know their shard by the key of its `meta`; the loader puts the prefixes below before each script that names one.
"""

from __future__ import annotations

import re
import zlib

# What a script calls a family of keys -> what stands between the hash tag and the rest of the name.
FAMILIES = {
    "JOB": "j:",  # + id            string: the record
    "BUCKET": "b:",  # + n             zset: id -> ms
    "READY": "r:",  # + priority:topic  list: number:id
    "DEAD": "d:",  # + topic         zset: id -> ms of death
    "COUNTS": "c:",  # + topic         hash: jobs by state, totals ever
    "DUE": "h:",  # + topic         hash: pending jobs by minute (`m…`) or hour (`h…`) of their due time
    "TOPICS": "t",  # zset: topic -> ms of last use
    "PAUSED": "p:",  # + topic         string: paused until
    "ASIDE": "x",  # hash: id -> a record that could not be read
    "MOVING": "m:",  # + ms:batch      hash: id -> a record on its way to another Redis
    "EVENTS": "e",  # stream: kept for a journal
    "LOCK": "lock:",  # + n             string: the token of the process that runs the timer of bucket n
    "ROLL": "roll",  # of shard 0: zset: token of a living instance -> ms of its last signature
    "BARRIER": "fence",  # string: empty, gone after a second; written so that there was a write
    "BELL": "bell",  # a channel, not a key
}

NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,32}")


class Keys:
    """The keys of one shard."""

    def __init__(self, namespace: str, shard: int) -> None:
        self.tag = f"{{{namespace}:{shard}}}:"
        self.meta = self.tag + "meta"
        # Declared by every script and never written: while a Cluster moves the slot, a script that names one key
        # that is there and one that is not is refused whole (TRYAGAIN) instead of failing in its middle.
        self.never = self.tag + "never"
        self.bell = self.tag + FAMILIES["BELL"]

    def job(self, job_id: str) -> str:
        return self.tag + FAMILIES["JOB"] + job_id

    def bucket(self, number: int) -> str:
        return f"{self.tag}{FAMILIES['BUCKET']}{number}"

    def ready(self, priority: int, topic: str) -> str:
        return f"{self.tag}{FAMILIES['READY']}{priority}:{topic}"

    def dead(self, topic: str) -> str:
        return self.tag + FAMILIES["DEAD"] + topic

    def counts(self, topic: str) -> str:
        return self.tag + FAMILIES["COUNTS"] + topic

    def due(self, topic: str) -> str:
        return self.tag + FAMILIES["DUE"] + topic

    def paused(self, topic: str) -> str:
        return self.tag + FAMILIES["PAUSED"] + topic

    @property
    def topics(self) -> str:
        return self.tag + FAMILIES["TOPICS"]

    @property
    def aside(self) -> str:
        return self.tag + FAMILIES["ASIDE"]

    @property
    def roll(self) -> str:
        return self.tag + FAMILIES["ROLL"]

    def lock(self, number: int) -> str:
        return f"{self.tag}{FAMILIES['LOCK']}{number}"


def shard_of(job_id: str, shards: int) -> int:
    """The shard of an id: CRC-32 of the id up to its first `@`, so that the copies of a virtual topic's job
    (`<id>@<topic>`) live together."""
    return zlib.crc32(job_id.partition("@")[0].encode()) % shards if shards > 1 else 0


_WORD = re.compile(r"\w+")


def lua_names(source: str) -> str:
    """The Lua lines that define the prefixes that `source` uses, from the key of `meta`."""
    words = set(_WORD.findall(source))
    used = [name for name in FAMILIES if name in words]
    if not used:
        return ""
    values = ", ".join(f"TAG .. '{FAMILIES[name]}'" for name in used)
    return f"local TAG = string.sub(meta, 1, -5)\nlocal {', '.join(used)} = {values}\n"
