"""The log of actions in Redis: a stream of shard 0, `{namespace:0}:actions`, of about the last 10,000 entries.

An action has two entries: one that it begins, written before anything is done, and one with its outcome, which names
the first. So no action is done without its entry; one without an outcome was cut off, and may have been done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from buckets.keys import FAMILIES
from buckets.shards import Shards

OF = "of"  # in an outcome: the id of the entry that it is about
_LATE_MS = 120_000  # an outcome is looked for so long behind the beginning
_MOST_LATE = 10_000  # entries that are searched for them

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

    async def page(self, before: str | None, count: int) -> tuple[list[Action], str | None]:
        """Up to `count` actions, the newest first, that began before an entry (None: all), and the entry to go on with
        (None: there are no more). A page may be short."""
        rows = await self._range("XREVRANGE", f"({before}" if before else "+", "-", count + 1)
        more, rows = len(rows) > count, rows[:count]
        outcomes = {row[OF]: row for _, row in await self._later(rows, before) if OF in row}
        actions = [Action(name, row, outcomes.get(name)) for name, row in rows if OF not in row]
        return actions, rows[-1][0] if more else None

    async def _later(self, rows: list[Row], before: str | None) -> list[Row]:
        """These rows, and those that came within two minutes behind them."""
        if before is None or not rows:
            return rows
        end = int(rows[0][0].partition("-")[0]) + _LATE_MS
        return rows + await self._range("XRANGE", f"({rows[0][0]}", str(end), _MOST_LATE)

    async def _range(self, command: str, first: str, last: str, count: int) -> list[Row]:
        rows = await self._shards.redis.read(command, self._key, first, last, "COUNT", count)
        return [(name.decode(), _read(fields)) for name, fields in rows]


def _read(fields: Sequence[bytes]) -> dict[str, Any]:
    """An entry; one that cannot be read is empty."""
    try:
        read = json.loads(dict(zip(fields[::2], fields[1::2], strict=False))[b"entry"])
    except (ValueError, LookupError):
        return {}
    return read if isinstance(read, dict) else {}
