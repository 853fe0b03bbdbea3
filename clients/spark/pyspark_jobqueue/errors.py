"""The errors of this package. Their texts are for the person who wrote the query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class JobQueueError(Exception):
    """What all of them are."""


class BadOption(JobQueueError, ValueError):
    """An option, a column or a flag that cannot be; raised when the query is planned, before any row is read."""


class Refused(JobQueueError):
    """The service said no, and a repetition does not help. `answer` is all that it said."""

    def __init__(self, answer: Mapping[str, Any], doing: str) -> None:
        self.answer, self.doing = answer, doing
        self.code = str(answer.get("code"))
        super().__init__(f"{doing}: {answer.get('error')} ({self.code})")

    def __reduce__(self) -> tuple[type[Refused], tuple[Mapping[str, Any], str]]:
        return type(self), (self.answer, self.doing)  # it travels from the tasks


class Unreachable(JobQueueError):
    """No answer came, or only "not now", as often as it was asked."""
