"""Answers of the service about jobs and topics, as Arrow batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from pyspark_jobqueue.connector.read_schema import Column

# Columns whose name differs from the field of the answer.
_FIELDS = {"due_at": "due", "created_at": "created", "delayed_until": "until", "body": "value"}
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
    """The columns as Arrow has them."""
    return pa.schema([pa.field(each.name, TYPES[each.kind], each.nullable) for each in columns])


class AnswerBatches:
    """Makes batches with the columns of one query."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._schema = arrow_schema(columns)
        self._fields = [_FIELDS.get(each.field, each.field) for each in columns]
        self._values = [
            _body if field == "value" else _VALUES.get(each.kind, _unchanged)
            for each, field in zip(columns, self._fields, strict=True)
        ]

    def of(self, answers: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Jobs or topics as a batch."""
        arrays = [
            pa.array(values(answer.get(field) for answer in answers), type=each.type)
            for each, field, values in zip(self._schema, self._fields, self._values, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _unchanged(values: Iterable[Any]) -> list[Any]:
    return list(values)


def _lists(values: Iterable[list[Any] | None]) -> list[list[Any] | None]:
    """None for an empty list: no backoff, so that what was read can be written back."""
    return [value or None for value in values]


def _body(values: Iterable[Any]) -> list[str]:
    return list(map(_text, values))


def _text(body: Any) -> str:
    try:
        return orjson.dumps(body).decode()
    except orjson.JSONEncodeError:  # orjson writes 254 levels at most; the service accepts 500
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _instants(values: Iterable[float | None]) -> list[int | None]:
    """Unix seconds as microseconds, rounded to the service's milliseconds: a double brings in fractions otherwise."""
    return [None if value is None else round(value * 1000) * 1000 for value in values]


def _pairs(values: Iterable[Mapping[str, Any] | None]) -> list[list[tuple[str, Any]] | None]:
    return [None if value is None else list(value.items()) for value in values]


_VALUES: Mapping[str, Callable[[Iterable[Any]], list[Any]]] = {
    "timestamp": _instants,
    "array<double>": _lists,
    "map<string,string>": _pairs,
    "map<string,bigint>": _pairs,
}
