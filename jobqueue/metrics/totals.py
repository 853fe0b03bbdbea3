"""The totals of topics, kept from falling: Prometheus would take a fall for a restart and count everything again.

Those in Redis fall when a delivery is undone, when Redis is emptied, and when one of the topics that are added up under
`other` is forgotten. Processes that share a metrics folder share what they last showed, as a scrape may ask any.
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
    """The totals of one topic. A fall of `created` means an emptied Redis, not an undone delivery."""

    gone: dict[str, int] = {}
    highest: dict[str, int] = {}

    def raise_to(self, totals: Numbers) -> None:
        """Take in what Redis holds now."""
        if totals.get("created", 0) < self.highest.get("created", 0):
            self.gone = {name: max(number - totals.get(name, 0), 0) for name, number in self.shown().items()}
            self.highest = {}
        for name, number in totals.items():
            self.highest[name] = max(number, self.highest.get(name, 0))

    def shown(self) -> dict[str, int]:
        """The totals to show."""
        names = self.gone.keys() | self.highest.keys()
        return {name: self.gone.get(name, 0) + self.highest.get(name, 0) for name in sorted(names)}


class _Shown(Struct):
    topics: dict[str, Rising] = {}
    at: float = 0.0  # s, monotonic: the end of the last reading


class Totals:
    """The totals of all topics of a namespace. `folder`: where processes share them."""

    def __init__(self, namespace: str = "", folder: Path | None = None) -> None:
        self._file = folder / f"totals-{namespace}.json" if folder else None
        self._shown = _Shown()

    def raised(self, topics: Mapping[str, Numbers], begun: float) -> dict[str, dict[str, int]]:
        """The totals to show for those that Redis answered to a question sent at `begun` (s, time.monotonic)."""
        if self._file is None:
            return self._raised(topics, begun)
        try:
            with locked(self._file.parent):
                self._read(self._file)
                shown = self._raised(topics, begun)
                self._write(self._file)
        except OSError:  # the folder was removed; then each process shows its own
            shown = self._raised(topics, begun)
        return shown

    def _raised(self, topics: Mapping[str, Numbers], begun: float) -> dict[str, dict[str, int]]:
        now = time.monotonic()
        # Nobody knows which of two overlapping readings is older, and an older one would look like an emptied Redis.
        alone = not begun < self._shown.at <= now
        for topic, totals in topics.items():
            if alone or topic not in self._shown.topics:
                self._shown.topics.setdefault(topic, Rising()).raise_to(totals)
        self._shown.at = now
        return {topic: self._shown.topics[topic].shown() for topic in topics}

    def _read(self, file: Path) -> None:
        try:
            self._shown = msgspec.json.decode(file.read_bytes(), type=_Shown)
        except (FileNotFoundError, msgspec.MsgspecError):
            self._shown = _Shown()

    def _write(self, file: Path) -> None:
        new = file.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self._shown))
        new.replace(file)
