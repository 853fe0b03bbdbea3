"""What all instances know of tokens and their actions, kept in Redis.

The records of tokens are a hash of shard 0, `{namespace:0}:tokens`.

    <id>         the record of a token: JSON, of which only `changed` matters here
    used:<id>    the minute in which it was last used, in unix seconds
    !version     raised by each change of a record, and never repeated

Of two records of an id the one that was changed last holds, wherever they meet. A change is announced on the bell of
shard 0 (`tokens <version>`), and the answers to the list of members carry the version too (timers/members.py).

The permits of a rate are a bucket, `{namespace:0}:rate:<name>`, of which the processes of all instances lease chunks.

The log of actions is a stream of shard 0, `{namespace:0}:actions`, of about the last 10,000 entries. An action has two
entries: one when it begins, written before anything is done, and one with its outcome, which names the first. So no
action is done without its entry; one without an outcome was cut off, and may have been done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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


async def lease(
    shards: Shards, name: str, *, rate: int, burst: int, least: int, most: int, owed: int
) -> tuple[int, float]:
    """Lease up to `most` permits of a bucket that gets `rate` of them a second and holds `burst`, or none where there
    are fewer than `least`. `owed`: how many were spent without a lease since the last one. Returns how many are leased
    and, where none are, after how many seconds to ask again. Raises JobQueueError; then it may or may not be done."""
    leased, after_us = await shards.call(
        "lease_rate",
        0,
        now=shards.clock.now(),
        whose=name,
        rate=rate,
        burst=burst,
        least=least,
        most=most,
        owed=owed,
    )
    return leased, after_us / 1e6


OF = "of"  # in an outcome: the id of the entry that it is about
_LATE_MS = 120_000  # an outcome is looked for so long behind the beginning
_MOST_LATE = 10_000  # entries that are searched for them
_READ = 500  # entries at a time

Fields = Mapping[str, Any]
Row = tuple[str, dict[str, Any]]
"""The id of an entry, and what is in it."""


class Action(NamedTuple):
    """One action."""

    id: str
    """`<ms since the epoch>-<number>`: when it began."""
    begun: Fields
    outcome: Fields | None
    """None: not known."""

    @property
    def at_ms(self) -> int:
        """When it began, in ms since the epoch."""
        return int(self.id.partition("-")[0])


class Actions:
    """The log of a namespace."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._key = shards.keys[0].tag + FAMILIES["ACTIONS"]

    async def note(self, entries: Sequence[Fields]) -> list[str]:
        """Append entries; returns their ids. Raises JobQueueError; then they may or may not be there."""
        texts = [json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries]
        return [each.decode() for each in await self._shards.call("note_actions", 0, texts)]

    async def page(
        self,
        before: str | None,
        count: int,
        since_ms: int = 0,
        is_wanted: Callable[[Fields], bool] = lambda begun: True,
    ) -> tuple[list[Action], str | None]:
        """Up to `count` actions, the newest first, that began before an entry (None: all), and the entry to go on with
        (None: there are no more). `is_wanted`: asked of each when it began."""
        found: list[Row] = []
        outcomes: dict[str, Fields] = {}
        last, rows_left = before, True
        while rows_left and len(found) <= count:
            rows = await self._range("XREVRANGE", f"({last}" if last else "+", str(since_ms), _READ)
            outcomes |= _outcomes(rows)
            begun = [(name, row) for name, row in rows if OF not in row and "action" in row]
            found += [(name, row) for name, row in begun if is_wanted(row)]
            last, rows_left = rows[-1][0] if rows else None, len(rows) == _READ
        more, found = len(found) > count, found[:count]
        if before and found:
            outcomes |= _outcomes(await self._later(before, found[0][0]))
        return [Action(name, row, outcomes.get(name)) for name, row in found], found[-1][0] if more else None

    async def _later(self, first: str, begun: str) -> list[Row]:
        """What was written from an entry on, until two minutes after another one."""
        end = int(begun.partition("-")[0]) + _LATE_MS
        return await self._range("XRANGE", first, str(end), _MOST_LATE)

    async def _range(self, command: str, first: str, last: str, count: int) -> list[Row]:
        rows = await self._shards.redis.read(command, self._key, first, last, "COUNT", count)
        return [(name.decode(), _read(fields)) for name, fields in rows]


def _outcomes(rows: Sequence[Row]) -> dict[str, Fields]:
    """The outcomes among some entries, by the ids of those that they are about."""
    return {str(row[OF]): row for _, row in rows if OF in row}


def _read(fields: Sequence[bytes]) -> dict[str, Any]:
    """An entry; one that cannot be read is empty."""
    try:
        read = json.loads(dict(zip(fields[::2], fields[1::2], strict=False))[b"entry"])
    except (ValueError, LookupError):
        return {}
    return read if isinstance(read, dict) else {}
