"""The totals of topics, made never to fall: Prometheus would take that for a restart and count all of it again.

Those in Redis fall when a delivery is undone, when Redis is emptied, and when one of the topics that are added up under
`other` is forgotten. Processes that share a folder of metrics share what they have told, as a scrape may ask any.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from jobqueue.metrics.shared import locked

Numbers = Mapping[str, int]


class Rising(Struct):
    """The totals of one topic. `created` tells an emptied Redis from an undone delivery."""

    gone: dict[str, int] = {}
    highest: dict[str, int] = {}

    def raise_to(self, totals: Numbers) -> None:
        """Redis says this now."""
        if totals.get("created", 0) < self.highest.get("created", 0):
            self.gone = {name: max(number - totals.get(name, 0), 0) for name, number in self.shown().items()}
            self.highest = {}
        for name, number in totals.items():
            self.highest[name] = max(number, self.highest.get(name, 0))

    def shown(self) -> dict[str, int]:
        """The totals to show."""
        names = self.gone.keys() | self.highest.keys()
        return {name: self.gone.get(name, 0) + self.highest.get(name, 0) for name in sorted(names)}


class _Told(Struct):
    topics: dict[str, Rising] = {}
    at: float = 0.0  # s, of the clock since the machine's start: the end of the last reading


class Totals:
    """The totals of all topics of a namespace. `folder`: where processes share them."""

    def __init__(self, namespace: str = "", folder: Path | None = None) -> None:
        self._file = folder / f"totals-{namespace}.json" if folder else None
        self._told = _Told()

    def raised(self, topics: Mapping[str, Numbers], begun: float) -> dict[str, dict[str, int]]:
        """The totals to show for those that Redis told, to a question asked at `begun` (s, time.monotonic)."""
        if self._file is None:
            return self._raised(topics, begun)
        try:
            with locked(self._file.parent):
                self._read(self._file)
                shown = self._raised(topics, begun)
                self._write(self._file)
        except OSError:  # the folder was taken away; then each process tells its own
            shown = self._raised(topics, begun)
        return shown

    def _raised(self, topics: Mapping[str, Numbers], begun: float) -> dict[str, dict[str, int]]:
        now = time.monotonic()
        # Of two readings that overlap nobody knows which is older, and an older one would look like an emptied Redis.
        alone = not begun < self._told.at <= now
        for topic, totals in topics.items():
            if alone or topic not in self._told.topics:
                self._told.topics.setdefault(topic, Rising()).raise_to(totals)
        self._told.at = now
        return {topic: self._told.topics[topic].shown() for topic in topics}

    def _read(self, file: Path) -> None:
        try:
            self._told = msgspec.json.decode(file.read_bytes(), type=_Told)
        except (FileNotFoundError, msgspec.MsgspecError):
            self._told = _Told()

    def _write(self, file: Path) -> None:
        new = file.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self._told))
        new.replace(file)
