"""What is asked of a journal, and the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from jobqueue.metrics.process import LATENESS_S

By = Literal["topic", "hour", "day", "worker", "actor"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked."""

    since: int
    """us; with the sums by minute, its minute counts whole."""
    until: int
    """us: what was told from then on is left out."""
    topic: str | None = None
    """A pattern: `*` stands for any characters, `?` for one. None: any topic."""
    by: By = "topic"
    over_s: float = 0.0
    """Only what took longer."""


@dataclass(slots=True)
class Found:
    """The answer: a table."""

    columns: list[str]
    rows: list[list[Any]]
    notes: list[str] = field(default_factory=list)
    """What the table does not have, in words."""


class Inexact(ValueError):
    """A lateness that the sums by minute do not know; the message says which they do."""

    def __init__(self) -> None:
        bounds = ", ".join(f"{bound:g}" for bound in LATENESS_S)
        super().__init__(f"lateness is kept by ranges, so --over is one of {bounds} s")


def place_of(over_s: float) -> int:
    """The first range of lateness above a bound. Raises Inexact."""
    if over_s not in LATENESS_S:
        raise Inexact
    return LATENESS_S.index(over_s) + 1
