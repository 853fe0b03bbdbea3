"""The records of tokens in Redis: a hash of shard 0, `{namespace:0}:tokens`.

    <id>         the record of a token: JSON, of which only `changed` matters here
    used:<id>    the minute in which it was last used, in unix seconds
    !version     raised by each change of a record, and never repeated

Of two records of an id the one that was changed last holds, wherever they meet. A change is announced on the bell of
shard 0 (`tokens <version>`), and the answers to the list of members carry the version too (timers/members.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from buckets.keys import FAMILIES
from buckets.pages import chunks
from buckets.scripts import Value
from buckets.shards import Shards

VERSION = "!version"
USED = "used:"
_MOST = 200  # records a script


class Entry(NamedTuple):
    """A record on its way to Redis."""

    id: str
    changed: int
    """When, in us of Redis's clock."""
    record: bytes
    """JSON; empty: the record is to be dropped."""


class Stored(NamedTuple):
    """What Redis holds."""

    version: int
    """0 where there are none."""
    now_us: int
    """Redis's time."""
    records: dict[str, bytes]
    """By id, as they were written."""
    used: dict[str, int]
    """By id, the minute of the last use, in unix seconds."""

    def entries(self) -> list[Entry]:
        """The records that can be read."""
        found = [Entry(each, _changed(record), record) for each, record in self.records.items()]
        return [entry for entry in found if entry.changed]


class Tokens:
    """The records of tokens of a namespace."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._key = shards.keys[0].tag + FAMILIES["TOKENS"]

    async def version(self) -> int:
        """The version that the last change made; 0 where there was none. Raises JobQueueError."""
        return _number(await self._shards.redis.read("HGET", self._key, VERSION) or b"")

    async def read(self) -> Stored:
        """All of them at one moment. Raises JobQueueError."""
        flat = await self._shards.redis.read("HGETALL", self._key)
        now_us = await self._shards.now_us()
        names = [name.decode("utf-8", "replace") for name in flat[::2]]
        stored = Stored(0, now_us, {}, {})
        for name, value in zip(names, flat[1::2], strict=True):
            if name.startswith(USED):
                stored.used[name.removeprefix(USED)] = _number(value)
            elif name != VERSION:
                stored.records[name] = value
        version = _number(flat[2 * names.index(VERSION) + 1]) if VERSION in names else 0
        return stored._replace(version=version)

    async def write(self, entries: Iterable[Entry], *, seen: int | None = None, least: int = 0) -> bool:
        """Write those that are newer than what is kept, 200 at a time. With `seen`, only while the tokens are of this
        version but for what this call writes itself; False as soon as they are not. `least`: a version that the next
        one exceeds. Raises JobQueueError."""
        for some in chunks(list(entries), _MOST):
            done, version = await self._write(some, seen, least)
            if not done:
                return False
            seen = None if seen is None else version
        return True

    async def _write(self, entries: Sequence[Entry], seen: int | None, least: int) -> tuple[int, int]:
        rest: list[Value] = [value for entry in entries for value in entry]
        done, version = await self._shards.call(
            "write_tokens", 0, rest, now=self._shards.clock.now(), seen="" if seen is None else seen, least=least
        )
        return done, version

    async def note_used(self, uses: Mapping[str, int]) -> None:
        """Note when tokens were last used: by id, the minute in unix seconds. Raises JobQueueError."""
        for some in chunks(list(uses.items()), _MOST):
            await self._shards.call("note_used", 0, [value for use in some for value in use])


def _changed(record: bytes) -> int:
    """When a record was changed; 0 for one that cannot be read."""
    try:
        return int(json.loads(record)["changed"])
    except (ValueError, TypeError, LookupError):
        return 0


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() else 0
