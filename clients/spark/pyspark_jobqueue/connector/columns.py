"""The columns of a read, and those that a write accepts: their types, and the check of a schema.

The types of a read are written as Spark's `simpleString` spells them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pyspark_jobqueue.errors import BadOption, meant

JOBS: Mapping[str, str] = {
    "id": "string",
    "topic": "string",
    "state": "string",
    "due_at": "timestamp",
    "body": "string",
    "priority": "int",
    "ttr": "double",
    "ttl": "double",
    "retention": "double",
    "tries": "int",
    "backoff": "array<double>",
    "key": "string",
    "headers": "map<string,string>",
    "tags": "array<string>",
    "attempt": "int",
    "deliveries": "int",
    "created_at": "timestamp",
    "delayed_until": "timestamp",
    "ready_since": "timestamp",
    "reserved_until": "timestamp",
    "dead_since": "timestamp",
    "lease": "bigint",
    "worker": "string",
    "reason": "string",
    "cause": "string",
}
"""The columns of jobs and dead letters."""

STATS: Mapping[str, str] = {
    "topic": "string",
    "delayed": "bigint",
    "ready": "bigint",
    "reserved": "bigint",
    "dead": "bigint",
    "totals": "map<string,bigint>",
    "oldest_ready": "double",
    "paused": "boolean",
    "paused_until": "timestamp",
}
"""The columns of what=stats, one row per topic."""

HISTORY: Mapping[str, str] = {
    "time": "timestamp",
    "id": "string",
    "life": "timestamp",
    "topic": "string",
    "what": "string",
    "state_before": "string",
    "state_after": "string",
    "due": "timestamp",
    "next": "timestamp",
    "was": "timestamp",
    "priority": "int",
    "cause": "string",
    "attempts": "int",
    "deliveries": "int",
    "lease": "bigint",
    "worker": "string",
    "reason": "string",
    "instance": "string",
    "actor": "string",
    "source": "string",
    "shard": "int",
    "ms": "bigint",
    "seq": "bigint",
    "n": "int",
    "branch": "int",
    "forgotten": "boolean",
}
"""The columns of what=history, one row per event: the same as in the files that `jobqueue journal export` writes."""

READ_ONLY: tuple[str, ...] = (
    "state",
    "attempt",
    "deliveries",
    "created_at",
    "delayed_until",
    "ready_since",
    "reserved_until",
    "dead_since",
    "lease",
    "worker",
    "reason",
    "cause",
)
"""Columns that only the service sets. A writer accepts them when they are null."""


class Column(NamedTuple):
    """A column of a query."""

    name: str
    """The name in the query."""
    field: str
    """The name in JOBS, STATS or HISTORY."""
    kind: str
    """The type, as in JOBS, STATS or HISTORY."""
    nullable: bool = True


TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<double>": pa.list_(pa.float64()),
    "array<string>": pa.list_(pa.string()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "map<string,bigint>": pa.map_(pa.string(), pa.int64()),
}


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The columns as an Arrow schema."""
    return pa.schema([pa.field(each.name, TYPES[each.kind], each.nullable) for each in columns])


def ddl(columns: Iterable[Column]) -> str:
    """The schema as DDL for Spark. Its timestamps are instants, whatever `TIMESTAMP` means in the session."""
    names = [(each.name.replace("`", "``"), each.kind.replace("timestamp", "timestamp_ltz")) for each in columns]
    return ", ".join(f"`{name}` {kind}" for name, kind in names)


_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_NUMBERS = _INTEGERS | {"decimal", "float", "double"}
_TEXTS = frozenset({"string", "varchar", "char"})
_IN_A_BODY = _NUMBERS | _TEXTS | {"boolean", "date", "timestamp", "timestamp_ntz", "void"}


def is_text(kind: DataType) -> bool:
    return kind.typeName() in _TEXTS


def _is_integer(kind: DataType) -> bool:
    return kind.typeName() in _INTEGERS


def _is_number(kind: DataType) -> bool:
    return kind.typeName() in _NUMBERS


def _is_instant(kind: DataType) -> bool:
    return kind.typeName() == "timestamp"


def _is_ladder(kind: DataType) -> bool:
    return is_text(kind) or (isinstance(kind, ArrayType) and _is_number(kind.elementType))


def _is_list_of_texts(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and is_text(kind.elementType)


def _is_map_of_texts(kind: DataType) -> bool:
    return isinstance(kind, MapType) and is_text(kind.keyType) and is_text(kind.valueType)


class _Kind(NamedTuple):
    accepts: Callable[[DataType], bool]
    description: str


_TEXT = _Kind(is_text, "a string")
_SECONDS = _Kind(_is_number, "a number of seconds")
_INTEGER = _Kind(_is_integer, "an integer")

FIELDS: Mapping[str, _Kind] = {
    "id": _TEXT,
    "topic": _TEXT,
    "due_at": _Kind(_is_instant, "a timestamp (with local time zone)"),
    "delay": _SECONDS,
    "spread": _SECONDS,
    "body": _Kind(lambda kind: _no_json(kind) is None, "a string, or a struct, map, array, number or boolean"),
    "ttr": _SECONDS,
    "ttl": _SECONDS,
    "retention": _SECONDS,
    "priority": _INTEGER,
    "tries": _INTEGER,
    "backoff": _Kind(_is_ladder, "an array of numbers, or a string like 15,15,30"),
    "key": _TEXT,
    "headers": _Kind(_is_map_of_texts, "a map of strings"),
    "tags": _Kind(_is_list_of_texts, "an array of strings"),
    "action": _TEXT,
}
"""The fields of a job that a row may have."""


def option_of(field: str) -> str:
    """The option that names the column of a field: `dueAtColumn`."""
    first, *others = field.split("_")
    return first + "".join(map(str.capitalize, others)) + "Column"


@dataclass(frozen=True)
class Columns:
    """Where a write finds each field in its rows. Pickled to the tasks."""

    names: tuple[str, ...]  # of all columns
    places: Mapping[str, int]  # column positions, by field
    read_only: tuple[int, ...]
    text_body: bool  # the body is a string

    @classmethod
    def of(cls, schema: StructType, named: Mapping[str, str], topic: str | None) -> Self:
        """Check a schema. `named`: the column names that options set, by field. `topic`: the option `topic`.

        Raises BadOption.
        """
        places = _places(schema, named)
        others = [place for place in range(len(schema)) if place not in places.values()]
        read_only = tuple(place for place in others if schema[place].name.lower() in READ_ONLY)
        for place in others:
            if place not in read_only:
                raise BadOption(_unknown(schema[place].name, named))
        for field, place in places.items():
            _check_type(field, schema[place].name, schema[place].dataType)
        _check_together(places, topic)
        text_body = "body" in places and is_text(schema[places["body"]].dataType)
        return cls(tuple(schema.names), places, read_only, text_body)

    def name(self, field: str) -> str:
        """The column that holds a field of the protocol, for messages."""
        field = "due_at" if field == "at" else field
        return self.names[self.places[field]] if field in self.places else field


def _places(schema: StructType, named: Mapping[str, str]) -> dict[str, int]:
    """The column position of each field that the schema has. One column may serve two fields."""
    by_name = _by_name(schema)
    places = {}
    for field in FIELDS:
        name = named.get(field, field)
        if name.lower() in by_name:
            places[field] = by_name[name.lower()]
        elif field in named:
            available = ", ".join(schema.names)
            raise BadOption(f"option {option_of(field)} names an unknown column {name!r}; available: {available}")
    return places


def _by_name(schema: StructType) -> dict[str, int]:
    """The positions of the columns by lower-cased name, since Spark ignores case."""
    lowered = [name.lower() for name in schema.names]
    for name, number in Counter(lowered).items():
        if number > 1:
            raise BadOption(f"{number} columns are named {name!r}; names must be unique")
    return {name: place for place, name in enumerate(lowered)}


def _unknown(name: str, named: Mapping[str, str]) -> str:
    if name.lower() in named:
        return f"column {name!r} and the one that option {option_of(name.lower())} names are both present: drop one"
    return (
        f"unknown column {name!r}{meant(name, FIELDS)} A job has: {', '.join(FIELDS)}. Select only what should be sent"
    )


def _check_type(field: str, name: str, kind: DataType) -> None:
    if (kind.typeName() == "void" and field != "id") or FIELDS[field].accepts(kind):
        return
    raise BadOption(
        f"column {name!r} ({field}) must be {FIELDS[field].description}, not {_shown(kind)}{_advice(field, kind)}"
    )


def _shown(kind: DataType) -> str:
    text = kind.simpleString()
    return text if len(text) <= 100 else f"{text[:100]}…"


def _advice(field: str, kind: DataType) -> str:
    if field == "body":
        why = _no_json(kind)
        return f": {why}" if why else ""
    if field == "due_at" and kind.typeName() in ("timestamp_ntz", "date"):
        return ": it has no time zone; cast it to timestamp, which applies the session's"
    if field == "due_at" and _is_number(kind):
        return ": convert a number with timestamp_seconds or timestamp_millis"
    return ": cast it to string" if FIELDS[field] is _TEXT else ""


def _no_json(kind: DataType) -> str | None:
    """Why a type cannot become JSON, as advice for the user; None if it can."""
    if kind.typeName() == "binary":
        return "cast binary to string, or use base64()"
    return _no_part(kind)


def _no_part(kind: DataType) -> str | None:
    """Like `_no_json`, for parts of an array, a map or a struct, in which binary becomes base64."""
    match kind:
        case ArrayType():
            return _no_part(kind.elementType)
        case MapType():
            return _no_part(kind.valueType) if is_text(kind.keyType) else "a map's keys must be strings in JSON"
        case StructType():
            twice = [name for name, number in Counter(kind.names).items() if number > 1]
            if twice:
                return f"it contains the field {twice[0]!r} twice"
            return next((why for part in kind if (why := _no_part(part.dataType))), None)
    known = kind.typeName() in _IN_A_BODY or kind.typeName() == "binary"
    return None if known else f"JSON has no {kind.simpleString()}; cast it to string"


def _check_together(places: Mapping[str, int], topic: str | None) -> None:
    if "id" not in places:
        raise BadOption(
            "column id is missing; it makes a repeated write harmless. Select it, or name it with option idColumn"
        )
    if "due_at" in places and "delay" in places:
        raise BadOption("columns due_at and delay exclude each other; select one of them")
    if topic is None and "topic" not in places and "action" not in places:
        raise BadOption("a topic is missing: set option topic, or add a column topic")
