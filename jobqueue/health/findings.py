"""A finding, which `jobqueue check` prints as a line that begins with `ok`, `warn` or `bad`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, NamedTuple

Level = Literal["ok", "warn", "bad"]


class Finding(NamedTuple):
    """One finding about a subject, in a sentence."""

    level: Level
    subject: str
    sentence: str
    job: str = ""
    """The part of the sentence about a single job: its id, and the reason that its worker reported."""

    def __str__(self) -> str:
        return f"{self.level:<5}{self.subject}: {self.sentence}"

    def without_job(self) -> str:
        """The line for people who may not see jobs."""
        return str(self).replace(self.job, "…") if self.job else str(self)


Findings = AsyncIterator[Finding]
