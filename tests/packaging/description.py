"""What a client of an older version loses with a newer one, by the descriptions of both at /openapi.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]


class Description:
    """The description of one version."""

    def __init__(self, document: Schema) -> None:
        self.paths = {(path, method) for path, methods in document["paths"].items() for method in methods}
        self._schemas: Schema = document["components"]["schemas"]

    @property
    def commands(self) -> dict[str, Schema]:
        """The request of each command, by the command's name."""
        named = (each for each in self._schemas.values() if "x-answers" in each)
        return {each["properties"]["command"]["enum"][0]: each for each in named}

    def answered(self, command: str) -> dict[str, Schema]:
        """The fields of the command's answers."""
        shapes = (self._schemas[each["$ref"].rpartition("/")[2]] for each in self.commands[command]["x-answers"])
        return {name: field for shape in shapes for name, field in shape["properties"].items()}

    @property
    def codes(self) -> set[str]:
        """The codes of refusals."""
        return _values(self._schemas["Refusal"]["properties"]["code"])


def lost(old: Description, new: Description) -> Iterator[str]:
    """What the old version has and the new one has not, or asks for and the old one did not."""
    yield from (f"{method} {path}" for path, method in old.paths - new.paths)
    yield from old.codes - new.codes
    for command, request in old.commands.items():
        if command not in new.commands:
            yield command
            continue
        asked = new.commands[command]
        yield from (f"{command} without {each}" for each in {*asked["required"]} - {*request["required"]})
        yield from _lost(command, request["properties"], asked["properties"])
        yield from _lost(f"the answer to {command}", old.answered(command), new.answered(command))


def _lost(where: str, old: dict[str, Schema], new: dict[str, Schema]) -> Iterator[str]:
    yield from (f"{name} of {where}" for name in old.keys() - new.keys())
    for name in old.keys() & new.keys():
        if taken := _values(new[name]):  # else any value may stand there
            yield from (f"{value!r} as {name} of {where}" for value in _values(old[name]) - taken)


def _values(field: Schema) -> set[str]:
    """The words that a field may have, where they are listed."""
    parts = [field, *field.get("anyOf", [])]
    return {value for part in parts for value in part.get("enum", []) if isinstance(value, str)}
