"""The records of tokens and the log of actions, which all instances share through Redis.

The records of tokens are in a hash in shard 0, `{namespace:0}:tokens`.

    <id>         the record of a token: JSON, of which only `changed` matters here
    used:<id>    the minute in which it was last used, in unix seconds
    !version     raised by each change of a record, and never repeated

If there are two records with the same id, the one changed last always wins. A change is announced on the bell of shard
0 (`tokens <version>`), and an instance that signs the list of members gets the version too (timers/members.py).

The permits of a rate are in a bucket, `{namespace:0}:rate:<name>`, from which the processes of all instances lease
permits in chunks.

The log of actions is a stream in shard 0, `{namespace:0}:actions`, with about the last 10,000 entries. An action has
two entries: the first is written before anything is done, and the second has the outcome and names the first. So every
action that was done has an entry; an action without an outcome was interrupted, and may or may not have been done.
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
_MOST = 200  # records per script


class Entry(NamedTuple):
    """A record on its way to Redis."""

    id: str
    changed: int
    """When the record was changed, in us by Redis's clock."""
    record: bytes
    """JSON, or empty to drop the record."""


class Stored(NamedTuple):
    """All records of tokens in Redis."""

    version: int
    """The version of the records, or 0 before the first change."""
    now_us: int
    """Redis's time."""
    records: dict[str, bytes]
    """By id, the records as they were written."""
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
        """The version after the last change, or 0 if there was no change. Raises JobQueueError."""
        return _number(await self._shards.redis.read("HGET", self._key, VERSION) or b"")

    async def read(self) -> Stored:
        """Read all records as of one moment. Raises JobQueueError."""
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
        """Write the entries that are newer than the stored records, 200 at a time. `seen`: the version that the caller
        has read; if another writer has changed it, the call stops and returns False. `least`: the next version is
        greater than this. Raises JobQueueError."""
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
    """When a record was changed, or 0 if the record cannot be read."""
    try:
        return int(json.loads(record)["changed"])
    except (ValueError, TypeError, LookupError):
        return 0


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() else 0


async def lease(
    shards: Shards, name: str, *, rate: int, burst: int, least: int, most: int, owed: int
) -> tuple[int, float]:
    """Lease up to `most` permits from a bucket that gains `rate` permits a second and holds up to `burst`, or none if
    the bucket has fewer than `least`. `owed`: how many permits were spent without a lease since the last lease. Returns
    how many were leased and, if none, after how many seconds to ask again. Raises JobQueueError, after which the
    permits may or may not have been leased."""
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


OF = "of"  # the field of an outcome that has the id of its action's first entry
_LATE_MS = 120_000  # how long after the beginning of an action its outcome is searched for
_MOST_LATE = 10_000  # the most entries that are searched for late outcomes
_READ = 500  # entries read at a time

Fields = Mapping[str, Any]
Row = tuple[str, dict[str, Any]]
"""The id of an entry, and its content."""


class Action(NamedTuple):
    """One action."""

    id: str
    """`<ms since the epoch>-<number>`; the ms are when the action began."""
    begun: Fields
    outcome: Fields | None
    """None if the outcome is unknown."""

    @property
    def at_ms(self) -> int:
        """When the action began, in ms since the epoch."""
        return int(self.id.partition("-")[0])


class Actions:
    """The log of a namespace."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._key = shards.keys[0].tag + FAMILIES["ACTIONS"]

    async def note(self, entries: Sequence[Fields]) -> list[str]:
        """Append entries; returns their ids. Raises JobQueueError, after which the entries may or may not have been
        written."""
        texts = [json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries]
        return [each.decode() for each in await self._shards.call("note_actions", 0, texts)]

    async def page(
        self,
        before: str | None,
        count: int,
        since_ms: int = 0,
        is_wanted: Callable[[Fields], bool] = lambda begun: True,
    ) -> tuple[list[Action], str | None]:
        """Returns up to `count` actions, newest first, that began before the entry `before` (None for any action), and
        the entry to continue from, or None if there are no more. `is_wanted`: called with the first entry of each
        action."""
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
        """The entries from `first` on, until two minutes after the entry `begun`."""
        end = int(begun.partition("-")[0]) + _LATE_MS
        return await self._range("XRANGE", first, str(end), _MOST_LATE)

    async def _range(self, command: str, first: str, last: str, count: int) -> list[Row]:
        rows = await self._shards.redis.read(command, self._key, first, last, "COUNT", count)
        return [(name.decode(), _read(fields)) for name, fields in rows]


def _outcomes(rows: Sequence[Row]) -> dict[str, Fields]:
    """The outcomes among some entries, by the ids of their actions' first entries."""
    return {str(row[OF]): row for _, row in rows if OF in row}


def _read(fields: Sequence[bytes]) -> dict[str, Any]:
    """The content of an entry; empty if the entry cannot be read."""
    try:
        read = json.loads(dict(zip(fields[::2], fields[1::2], strict=False))[b"entry"])
    except (ValueError, LookupError):
        return {}
    return read if isinstance(read, dict) else {}
