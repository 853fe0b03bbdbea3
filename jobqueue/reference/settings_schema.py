"""The JSON Schema of settings files, for editors: `python -m jobqueue.reference.settings_schema` writes it beside the
example, and `jobqueue config --schema` prints it.

Names, types, ranges and defaults come from the settings, the words about each from its comment in the example. It is in
draft 7 and in one piece: Taplo, which editors ask about TOML, knows no later draft, and ignores what stands beside a
`$ref`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from jobqueue.reference import end_patterns
from jobqueue.settings import Settings

Schema = dict[str, Any]

EXAMPLE = Path(__file__).with_name("jobqueue.toml")
"""Every setting with its default and a comment: a link to the file in conf/, or in what is built a copy."""

_ABOUT = (
    "The settings of a jobqueue service, or of its web console where that runs by itself. The service also checks what "
    "a schema cannot say: settings that need or exclude each other, networks and IP addresses, and that integers have "
    "no decimal point. `jobqueue check --config FILE` reports what the service would refuse."
)
_LINE = re.compile(r"(?:\[(?P<table>.+)\]|(?P<name>\w+) = .*?|)(?:\s+# (?P<words>.+))?")
_ENTRY = re.compile(r'\."[^"]+"')  # of a table whose names the operator chooses
_OF_PROTOCOL = re.compile(r"protocols\.\w+\.(\w+)")


def schema() -> Schema:
    """The whole schema."""
    (root,), parts = msgspec.json.schema_components([Settings])
    whole: Schema = _in_one_piece(root, parts)
    end_patterns(whole)
    _describe(whole, words(EXAMPLE.read_text()))
    draft = {"$schema": "http://json-schema.org/draft-07/schema#"}
    return draft | whole | {"title": "jobqueue", "description": _ABOUT}


def text() -> str:
    """The whole schema, as a file has it."""
    return json.dumps(schema(), indent=2) + "\n"


def words(example: str) -> dict[str, str]:
    """The comments of settings and tables, by their places, such as `topics.ttr_s`. A setting of a protocol that has no
    comment has that of the same setting of the protocols above it."""
    found: dict[str, str] = {}
    table = place = ""
    for line in example.splitlines():
        match = _LINE.fullmatch(line.removeprefix("# "))
        if match is None:
            continue
        if match["table"]:
            place = table = _ENTRY.sub("", match["table"])
            if table.startswith("protocols."):
                above = {name[1]: said for each, said in found.items() if (name := _OF_PROTOCOL.fullmatch(each))}
                found |= {f"{table}.{name}": said for name, said in above.items()}
        elif match["name"]:
            place = f"{table}.{match['name']}" if table else match["name"]
        if match["words"]:
            is_next_line = not (match["table"] or match["name"])
            found[place] = f"{found[place]} {match['words']}" if is_next_line else match["words"]
    return found


def _in_one_piece(schema: Any, parts: dict[str, Schema]) -> Any:
    """A schema with the parts that it names in their places, and without null, which TOML does not have."""
    if isinstance(schema, list):
        return [_in_one_piece(each, parts) for each in schema]
    match schema:
        case {"$ref": str(name), **beside}:
            return _in_one_piece({**parts[name.rpartition("/")[2]], **beside}, parts)
        case {"anyOf": [kind, {"type": "null"}]}:
            return _in_one_piece(kind, parts)
        case dict():
            return {name: _in_one_piece(each, parts) for name, each in schema.items() if each is not None}
    return schema


def _describe(table: Schema, comments: dict[str, str], within: str = "") -> None:
    """Describe each setting of a table, and of the tables in it, by its comment; what has none keeps the words of its
    type."""
    for name, setting in table["properties"].items():
        place = within + name
        if place in comments:
            setting["description"] = comments[place]
        for inner in (setting, setting.get("additionalProperties")):
            if isinstance(inner, dict) and "properties" in inner:
                _describe(inner, comments, f"{place}.")


FILE = Path(__file__).parents[2] / "conf" / "jobqueue.schema.json"
"""The file in a checkout."""

if __name__ == "__main__":
    FILE.write_text(text())
