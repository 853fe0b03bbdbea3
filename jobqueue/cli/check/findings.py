"""Findings of `jobqueue check`: each a line that begins with `ok`, `warn` or `bad`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, NamedTuple

Level = Literal["ok", "warn", "bad"]


class Finding(NamedTuple):
    """One finding about a subject, in a sentence."""

    level: Level
    subject: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.level:<5}{self.subject}: {self.sentence}"


Findings = AsyncIterator[Finding]
