"""What an action has to say to the page behind it, which shows it once."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

_KEPT_S = 120.0
_MOST = 1000


class Note(NamedTuple):
    """A sentence; `kind` is done or failed."""

    text: str
    kind: str


class Notes:
    """Notes by names that nobody can guess."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._notes: dict[str, tuple[float, Note]] = {}

    def leave(self, note: Note) -> str:
        """Keep a note for two minutes; its name."""
        while len(self._notes) >= _MOST:
            del self._notes[next(iter(self._notes))]
        name = secrets.token_urlsafe(16)
        self._notes[name] = self._clock(), note
        return name

    def take(self, name: str) -> Note | None:
        """The note, which is gone then."""
        left, note = self._notes.pop(name, (0.0, None))
        return note if self._clock() - left < _KEPT_S else None
