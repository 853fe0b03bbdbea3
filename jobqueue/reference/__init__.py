"""The reference of the native protocol, made from the schema and the commands, as entries, Markdown and OpenAPI.

A command's text is its docstring in `commands`, its fields are in `schema.params` and its answers in `schema.answers`;
the text of a code is the docstring of its error. Beside it: the schema of settings files.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import Struct, structs

from buckets.errors import JobQueueError
from jobqueue.commands import native
from jobqueue.errors import STATUS
from jobqueue.schema import answers, params
from jobqueue.schema.fields import Field
from jobqueue.settings import Settings

ALIASES = {"ttr": "TTR"}  # fields with a second spelling


class Entry(NamedTuple):
    """A command of the protocol."""

    name: str
    does: str
    kind: type[Struct]
    answers: tuple[type[Struct], ...]

    @property
    def fields(self) -> list[Field]:
        """The command's fields, and the fields of its objects. A field with two spellings is listed once."""
        own = [field for field in params.FIELDS[self.name].values() if field.name not in ALIASES.values()]
        return own + params.PARTS.get(self.name, [])

    def default(self, field: str) -> str:
        """The default of a field, with the setting that the default comes from, if any."""
        words = next(each.default for each in self.fields if each.name == field)
        known = {each.name: each.default for each in structs.fields(Settings)}
        return f"{known[words]:g} (setting `{words}`)" if words in known else words


def entries() -> list[Entry]:
    """The commands in the order of their structs."""
    return [
        Entry(name, _text(getattr(native, name)), kind, answers.ANSWERS[name]) for name, kind in params.BY_NAME.items()
    ]


def codes() -> dict[str, str]:
    """Each code and its meaning, in the order of `STATUS`."""
    meanings = {error.code: _text(error) for error in _errors(JobQueueError) if "code" in vars(error)}
    return {code: meanings[code] for code in STATUS}


def _errors(root: type[JobQueueError]) -> Iterator[type[JobQueueError]]:
    yield root
    for error in root.__subclasses__():
        yield from _errors(error)


def _text(thing: Any) -> str:
    """A docstring in one line."""
    return " ".join((inspect.getdoc(thing) or "").split())


def end_patterns(schema: Any) -> None:
    """Write the end of a text as JSON Schema has it, `$`, in all patterns of a schema."""
    if isinstance(schema, dict) and isinstance(schema.get("pattern"), str):
        schema["pattern"] = schema["pattern"].replace(r"\Z", "$")
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        end_patterns(part)
