"""The errors of this package. Their messages address the person who wrote the query."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


class JobQueueError(Exception):
    """The base class of all errors of this package."""


class BadOption(JobQueueError, ValueError):
    """An invalid option, column or flag. Raised while the query is planned, before any row is read."""


class Refused(JobQueueError):
    """The service refused a request, and a retry would not help. `answer` is its whole answer."""

    def __init__(self, answer: Mapping[str, Any], doing: str) -> None:
        self.answer, self.doing = answer, doing
        self.code = str(answer.get("code"))
        super().__init__(f"{doing}: {answer.get('error')} ({self.code})")

    def __reduce__(self) -> tuple[type[Refused], tuple[Mapping[str, Any], str]]:
        return type(self), (self.answer, self.doing)  # the error is pickled from the tasks to the driver


class Unreachable(JobQueueError):
    """After all retries there was still no answer, or only "not now"."""


def meant(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known name as a suggestion, or just a full stop."""
    spelt = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), spelt, 1)
    return f"; did you mean {spelt[near[0]]}?" if near else "."
