"""The entries of the reference: what each command and each code is, gathered from where it is defined.

A command is its docstring in `commands`, its fields in `params`, its answers in `shapes`; a code is the docstring of
its error.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import Struct, structs

from buckets.errors import JobQueueError
from jobqueue import commands
from jobqueue.errors import STATUS
from jobqueue.schema import answers, params
from jobqueue.schema.fields import Field
from jobqueue.settings import Settings

ALIASES = {"ttr": "TTR"}  # fields that may be written in two ways


class Entry(NamedTuple):
    """A command of the protocol."""

    name: str
    does: str
    kind: type[Struct]
    answers: tuple[type[Struct], ...]

    @property
    def fields(self) -> list[Field]:
        """Its fields; one that may be written in two ways is told once."""
        return [field for field in params.FIELDS[self.name].values() if field.name not in ALIASES.values()]

    def default(self, field: str) -> str:
        """What holds where a field is not given, and the setting that it comes from."""
        words = params.FIELDS[self.name][field].default
        known = {each.name: each.default for each in structs.fields(Settings)}
        return f"{known[words]:g} (setting `{words}`)" if words in known else words


def entries() -> list[Entry]:
    """The commands in the order of their structs."""
    handlers: dict[type[Any], Any] = {**commands.MANY, **commands.ONE}
    return [Entry(name, _said(handlers[kind]), kind, answers.ANSWERS[name]) for name, kind in params.BY_NAME.items()]


def codes() -> dict[str, str]:
    """Each code and what it says, in the order of the table of statuses."""
    said = {error.code: _said(error) for error in _errors(JobQueueError) if "code" in vars(error)}
    return {code: said[code] for code in STATUS}


def _errors(root: type[JobQueueError]) -> Iterator[type[JobQueueError]]:
    yield root
    for error in root.__subclasses__():
        yield from _errors(error)


def _said(thing: Any) -> str:
    """A docstring in one line."""
    return " ".join((inspect.getdoc(thing) or "").split())
