"""The keys in Redis: built here and nowhere else.

All keys of a shard share the hash tag `{namespace:shard}`, so that every script is legal on a Cluster. A script derives
the tag from its first key, `meta`; the loader (buckets/scripts.py) defines the prefixes below in each script that uses
them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection

# The name of a family of keys in scripts -> the prefix between the hash tag and the rest of the key.
FAMILIES = {
    "JOB": "j:",  # + id            string: the record
    "BUCKET": "b:",  # + n             zset: id -> ms
    "SLICE": "s:",  # + n             zset: bounds of slices (lua/include/slices.lua); + n:bound   zset: id -> ms
    "READY": "r:",  # + priority:topic  list: number:id
    "HOLDERS": "kh:",  # + topic         zset: key@id of a job that holds its key -> 0 (lua/include/by_key.lua)
    "BLOCKED": "kb:",  # + topic         zset: key@order:id of a ready job whose key is busy -> 0
    "DEAD": "d:",  # + topic         zset: id -> ms when it died
    "COUNTS": "c:",  # + topic         hash: jobs by state, totals ever
    "DUE": "h:",  # + topic         hash: pending jobs by minute (`m…`) or hour (`h…`) of their due time
    "TOPICS": "t",  # zset: topic -> ms of last use
    "PAUSED": "p:",  # + topic         string: paused until
    "PERMITS": "l:",  # + topic         string: us since the epoch when all permits of its rate are available; expires
    "ASIDE": "x",  # hash: id or key -> what was found there and could not be used
    "EXPORTED": "m:",  # + ms:batch      hash: id -> a record on its way to another Redis
    "SCHEDULES": "schedules",  # hash: name -> the record of a schedule
    "OCCURRENCES": "o:",  # + schedule     zset: the end of the id of an occurrence that may be live -> its ms
    "EVENTS": "e",  # stream: kept for a journal
    "LOCK": "lock:",  # + n             string: token of the instance that runs the timer of bucket n
    "MEMBERS": "roll",  # of shard 0: zset: token of a live instance -> ms when it last signed in
    "CARDS": "cards",  # of shard 0: hash: token of an instance -> what it says about itself (timers/cards.py)
    "WORKERS": "w:",  # of shard 0: + token      string: the workers that poll through an instance; expires
    "COUNTER": "seq",  # of shard 0: string: the last number assigned
    "ALIAS": "alias:",  # of shard 0: + number     string: id; expires
    "BARRIER": "fence",  # string: empty, expires after a second; only the write matters
    "TOKENS": "tokens",  # of shard 0: hash: id -> the record of a token; for other fields see access.py
    "RATE": "rate:",  # of shard 0: + token      hash: how full the bucket of a token's rate is; expires
    "ACTIONS": "actions",  # of shard 0: stream: what people and operators did, for the command `actions`
    "OPERATIONS": "ops",  # of shard 0: zset: id of an operation -> ms when it was planned
    "OPERATION": "op:",  # + id             hash: in shard 0 an operation; in each shard its progress there; expires
    "FIGURES": "f:",  # of shard 0: + minute[:topic]  hash: what happened in that minute; expires
    "FIGURED": "figured",  # of shard 0: zset: topic with such figures -> ms when some were last added; expires
    "BELL": "bell",  # a channel, not a key
}

NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,32}")


class Keys:
    """The keys of one shard."""

    def __init__(self, namespace: str, shard: int) -> None:
        self.tag = f"{{{namespace}:{shard}}}:"
        self.meta = self.tag + "meta"
        # Declared by every script and never written: while a Cluster migrates the slot, a script that declares one key
        # that exists and one that does not is refused as a whole (TRYAGAIN) instead of failing halfway.
        self.never = self.tag + "never"
        self.bell = self.tag + FAMILIES["BELL"]

    def job(self, job_id: str) -> str:
        return self.tag + FAMILIES["JOB"] + job_id

    def bucket(self, number: int) -> str:
        return f"{self.tag}{FAMILIES['BUCKET']}{number}"

    def slices(self, bucket: int) -> str:
        return f"{self.tag}{FAMILIES['SLICE']}{bucket}"

    def ready(self, priority: int, topic: str) -> str:
        return f"{self.tag}{FAMILIES['READY']}{priority}:{topic}"

    def holders(self, topic: str) -> str:
        return self.tag + FAMILIES["HOLDERS"] + topic

    def blocked(self, topic: str) -> str:
        return self.tag + FAMILIES["BLOCKED"] + topic

    def dead(self, topic: str) -> str:
        return self.tag + FAMILIES["DEAD"] + topic

    def counts(self, topic: str) -> str:
        return self.tag + FAMILIES["COUNTS"] + topic

    def due(self, topic: str) -> str:
        return self.tag + FAMILIES["DUE"] + topic

    def paused(self, topic: str) -> str:
        return self.tag + FAMILIES["PAUSED"] + topic

    def permits(self, topic: str) -> str:
        return self.tag + FAMILIES["PERMITS"] + topic

    @property
    def topics(self) -> str:
        return self.tag + FAMILIES["TOPICS"]

    @property
    def aside(self) -> str:
        return self.tag + FAMILIES["ASIDE"]

    @property
    def schedules(self) -> str:
        return self.tag + FAMILIES["SCHEDULES"]

    def occurrences(self, schedule: str) -> str:
        return self.tag + FAMILIES["OCCURRENCES"] + schedule

    @property
    def events(self) -> str:
        return self.tag + FAMILIES["EVENTS"]

    @property
    def operations(self) -> str:
        return self.tag + FAMILIES["OPERATIONS"]

    def operation(self, operation: str) -> str:
        return self.tag + FAMILIES["OPERATION"] + operation

    @property
    def figured(self) -> str:
        return self.tag + FAMILIES["FIGURED"]

    @property
    def members(self) -> str:
        return self.tag + FAMILIES["MEMBERS"]

    def workers(self, token: str) -> str:
        return self.tag + FAMILIES["WORKERS"] + token

    def alias(self, number: int) -> str:
        return f"{self.tag}{FAMILIES['ALIAS']}{number}"

    def lock(self, number: int) -> str:
        return f"{self.tag}{FAMILIES['LOCK']}{number}"


def shard_of(job_id: str, shards: int) -> int:
    """The shard of an id: CRC-32 of the id up to its first `@`, so that the copies of a virtual topic's job
    (`<id>@<topic>`) share a shard."""
    return zlib.crc32(job_id.partition("@")[0].encode()) % shards if shards > 1 else 0


def lua_names(words: Collection[str]) -> str:
    """The Lua lines that define the prefixes that a script uses. `words`: the words of the script."""
    used = [name for name in FAMILIES if name in words]
    if not used:
        return ""
    values = ", ".join(f"TAG .. '{FAMILIES[name]}'" for name in used)
    return f"local TAG = string.sub(meta, 1, -5)\nlocal {', '.join(used)} = {values}\n"
