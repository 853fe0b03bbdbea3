"""Rows as Spark passes them to a writer, by column: Arrow batches, or Spark's own rows where it offers no batches.

Both return the same values: instants in UTC, maps and structs as dicts, decimals and bytes as Python's own types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.types import ArrayType, DataType, MapType, Row, StructType

if TYPE_CHECKING:
    import pyarrow as pa

# What pyarrow raises for a value that Python cannot represent: text that is not UTF-8, a year after 9999, a duplicate
# key in a map.
UNREADABLE = (ValueError, OverflowError, KeyError)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS = 1000


class Batch(Protocol):
    """Some rows of a write, by column."""

    def __len__(self) -> int: ...

    def values(self, place: int) -> list[Any]:
        """The values of a column. Raises one of UNREADABLE."""

    def micros(self, place: int) -> list[int | None]:
        """The values of a column of instants, in microseconds since 1970."""

    def finite(self, place: int) -> bool:
        """False if a column may contain NaN or an infinite number."""

    def empty(self, place: int) -> bool:
        """Whether a column contains only nulls."""

    def one(self, index: int) -> Batch:
        """A batch of one row."""


class ArrowBatch:
    """An Arrow batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def values(self, place: int) -> list[Any]:
        column = self._batch.column(place)
        kind = _in_utc(column.type)
        # Python does not know all of Spark's time zone names, and values must not depend on the session's time zone.
        column = column if kind == column.type else column.cast(kind)
        # Asking for dicts makes pyarrow ten times slower, but otherwise maps become lists of pairs.
        return list(column.to_pylist(maps_as_pydicts="strict") if _has_map(kind) else column.to_pylist())

    def micros(self, place: int) -> list[int | None]:
        return list(self._batch.column(place).cast("int64").to_pylist())

    def finite(self, place: int) -> bool:
        return _finite(self._batch.column(place))

    def empty(self, place: int) -> bool:
        column = self._batch.column(place)
        return bool(column.null_count == len(column))

    def one(self, index: int) -> ArrowBatch:
        return ArrowBatch(self._batch.slice(index, 1))


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """The same type with all its instants in UTC."""
    import pyarrow as pa  # noqa: PLC0415 - heavy; Spark imports this module to look a format up

    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC") if kind.tz else kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_in_utc(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    return kind


def _has_map(kind: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415

    return pa.types.is_map(kind) or any(_has_map(kind.field(place).type) for place in range(kind.num_fields))


def _finite(array: pa.Array) -> bool:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    kind = array.type
    if pa.types.is_floating(kind):
        return pc.all(pc.is_finite(array)).as_py() is not False  # null if the column has no numbers
    if pa.types.is_struct(kind):
        return all(map(_finite, array.flatten()))
    if pa.types.is_map(kind):
        return _finite(array.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _finite(array.flatten())
    return True


class RowBatch:
    """Spark's own rows, which streams get before Spark 4.1."""

    def __init__(self, rows: Sequence[Row], schema: StructType) -> None:
        self._rows, self._schema = rows, schema

    @classmethod
    def several(cls, rows: Iterator[Row], schema: StructType) -> Iterator[RowBatch]:
        while some := list(islice(rows, _ROWS)):
            yield cls(some, schema)

    def __len__(self) -> int:
        return len(self._rows)

    def values(self, place: int) -> list[Any]:
        plain = _plain(self._schema[place].dataType)
        return [None if row[place] is None else plain(row[place]) for row in self._rows]

    def micros(self, place: int) -> list[int | None]:
        return [None if each is None else (each - _EPOCH) // timedelta(microseconds=1) for each in self.values(place)]

    def finite(self, place: int) -> bool:
        return not any(map(endless, self.values(place)))

    def empty(self, place: int) -> bool:
        return all(row[place] is None for row in self._rows)

    def one(self, index: int) -> RowBatch:
        return RowBatch(self._rows[index : index + 1], self._schema)


def _plain(kind: DataType) -> Callable[[Any], Any]:
    """A function that converts a value of a row to plain Python. It depends on the type, because Spark's rows hold both
    instants and local times as datetimes without a zone; instants are in the zone of the process."""
    match kind:
        case ArrayType():
            part = _nullable(_plain(kind.elementType))
            return lambda value: [part(each) for each in value]
        case MapType():
            part = _nullable(_plain(kind.valueType))
            return lambda value: {key: part(each) for key, each in value.items()}
        case StructType():
            parts = [(field.name, _nullable(_plain(field.dataType))) for field in kind]
            return lambda value: {name: part(each) for (name, part), each in zip(parts, value, strict=True)}
    if kind.typeName() == "timestamp":
        return lambda value: value.astimezone(UTC)
    return lambda value: bytes(value) if isinstance(value, bytearray) else value


def _nullable(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else plain(value)


def endless(value: Any) -> bool:
    """Whether a value contains a number that JSON cannot express: NaN or an infinite one."""
    if isinstance(value, float | Decimal):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(endless, value.values()))
    return isinstance(value, list) and any(map(endless, value))
