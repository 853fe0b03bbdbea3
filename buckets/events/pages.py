"""How many entries of a stream to read at once: an entry may have a few bytes, or 1 MiB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_MOST = 250  # 0.3 ms of Redis
_FIRST = 16
_BYTES = 4 << 20  # of a page, as far as the last one tells


class PageSize:
    """The number of entries of the next page."""

    def __init__(self) -> None:
        self.entries = _FIRST

    def saw(self, page: Sequence[Sequence[Any]]) -> None:
        """Learn from a page: its entries are ids and fields. It grows fourfold at most, as the next may be larger."""
        weight = sum(len(field) for _, fields in page for field in fields or ())
        fitting = _BYTES * len(page) // max(weight, 1)
        self.entries = max(1, min(fitting, 4 * self.entries, _MOST))
