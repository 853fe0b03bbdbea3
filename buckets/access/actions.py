"""The log of actions in Redis: a stream of shard 0, `{namespace:0}:actions`, of about the last 10,000 entries.

An action has two entries: one that it begins, written before anything is done, and one with its outcome, which names
the first. So no action is done without its entry; one without an outcome was cut off, and may have been done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from buckets.keys import FAMILIES
from buckets.shards import Shards

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
