"""Rows become commands or are refused before sending; the same from Arrow batches and from Spark's rows."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import Row as SparkRow
from pyspark_jobqueue.connector.commands import Commands, Refusal, Row
from pyspark_jobqueue.connector.row_batches import ArrowBatch, Batch, RowBatch
from pyspark_jobqueue.connector.writer import Write
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts.jobs import write_options

from tests.spark.connector.schemas import parsed

NAN = float("nan")
pytestmark = pytest.mark.usefixtures("spark")  # parsing DDL needs one
Making = Callable[[str, list[tuple[Any, ...]]], Batch]

KINDS = {
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "America/New_York"),
    "timestamp_ntz": pa.timestamp("us"),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "decimal(20,3)": pa.decimal128(20, 3),
    "binary": pa.binary(),
    "array<double>": pa.list_(pa.float64()),
    "map<string,double>": pa.map_(pa.string(), pa.float64()),
    "struct<t:timestamp,n:timestamp_ntz,m:map<string,timestamp>,l:array<struct<x:binary>>>": pa.struct(
        [
            ("t", pa.timestamp("us", "America/New_York")),
            ("n", pa.timestamp("us")),
            ("m", pa.map_(pa.string(), pa.timestamp("us", "America/New_York"))),
            ("l", pa.list_(pa.struct([("x", pa.binary())]))),
        ]
    ),
}
NESTED = "struct<t:timestamp,n:timestamp_ntz,m:map<string,timestamp>,l:array<struct<x:binary>>>"


def arrow(schema: str, rows: list[tuple[Any, ...]]) -> Batch:
    """A batch as Spark passes it: instants in the zone of the session. A leading row is sliced off: the arrays that
    Spark passes may begin at any offset."""
    kinds = [part.split(" ", 1) for part in schema.split(", ")]
    columns = [
        pa.array([each[place] for each in [rows[0], *rows]], KINDS[kind]) for place, (_, kind) in enumerate(kinds)
    ]
    return ArrowBatch(pa.record_batch(columns, names=[name for name, _ in kinds]).slice(1))


def spark_rows(schema: str, rows: list[tuple[Any, ...]]) -> Batch:
    """Rows as Spark passes them: instants without a zone, in that of the process; structs as rows."""

    def as_spark(value: Any) -> Any:
        match value:
            case datetime(tzinfo=zone) if zone:
                return value.astimezone().replace(tzinfo=None)
            case dict():
                return SparkRow(**{name: as_spark(each) for name, each in value.items()})
            case list() if value and isinstance(value[0], tuple):
                return {key: as_spark(each) for key, each in value}
            case list():
                return list(map(as_spark, value))
        return value

    return RowBatch([SparkRow(*map(as_spark, row)) for row in rows], parsed(schema))


@pytest.fixture(params=[arrow, spark_rows])
def making(request: pytest.FixtureRequest) -> Making:
    made: Making = request.param
    return made


def made(batch: Batch, schema: str, topic: str | None = "t", **options: str) -> list[Row | Refusal]:
    given = {"url": "http://localhost:1", **({"topic": topic} if topic else {}), **options}
    write = Write.plan(given, parsed(schema))
    return list(Commands(write.columns, write.options).of(batch))


def outcomes(batch: Batch, schema: str, topic: str | None = "t", **options: str) -> list[Any]:
    """The commands; for a refused row, its code, field and message."""
    return [
        (row.answer["code"], row.answer["field"], row.answer["error"])
        if isinstance(row, Refusal)
        else json.loads(row.command)
        for row in made(batch, schema, topic, **options)
    ]


def test_due_times_are_unix_seconds_rounded_up_to_the_millisecond(making: Making) -> None:
    schema = "id string, due_at timestamp"
    times = [
        datetime(2026, 10, 25, 0, 30, 0, 123_000, UTC),
        datetime(2026, 1, 1, 0, 0, 0, 1, UTC),
        datetime(1969, 12, 31, 23, tzinfo=UTC),
        datetime(2261, 1, 1, 0, 0, 0, 999_999, UTC),
    ]
    rows = [(f"{number}", time) for number, time in enumerate(times)]
    dues = [command["at"] for command in outcomes(making(schema, rows), schema)]
    assert dues == [1792888200.123, 1767225600.001, 0, 9183110401.0]


def test_a_struct_becomes_json_with_instants_in_utc(making: Making) -> None:
    schema = f"id string, body {NESTED}"
    when = datetime(2026, 7, 1, 12, 0, 0, 5, UTC)
    body = {"t": when, "n": datetime(2026, 7, 1, 12), "m": [("a", when)], "l": [{"x": b"\x00\xff"}, None]}
    (command,) = outcomes(making(schema, [("a", body)]), schema)
    assert command["body"] == {
        "t": "2026-07-01T12:00:00.000005Z",
        "n": "2026-07-01T12:00:00",
        "m": {"a": "2026-07-01T12:00:00.000005Z"},
        "l": [{"x": "AP8="}, None],
    }


def test_a_decimal_travels_with_all_its_digits(making: Making) -> None:
    schema = "id string, delay decimal(20,3), body decimal(20,3)"
    (row,) = made(making(schema, [("a", Decimal("1.500"), Decimal("12345678901234567.125"))]), schema)
    assert not isinstance(row, Refusal)
    assert b'"body":12345678901234567.125' in row.command
    assert b'"delay":1.500' in row.command


def test_text_that_is_json_travels_as_it_stands(making: Making) -> None:
    schema = "id string, body string, backoff string"
    rows: list[tuple[Any, ...]] = [
        ("a", '{"b": 1.50,\n "a": 12345678901234567890123}', " 15, 30.5"),
        ("b", "{", None),
        ("c", "[NaN]", None),
        ("d", None, "15;30"),
        ("e", "1", "[15]"),
    ]
    batch = making(schema, rows)
    answers = outcomes(batch, schema, bodyFormat="json")
    row = made(batch, schema, bodyFormat="json")[0]
    assert isinstance(row, Row)
    assert b'"body":{"b": 1.50,\n "a": 12345678901234567890123}' in row.command
    assert answers[0]["backoff"] == [15, 30.5]
    assert answers[1:3] == [("BAD_FIELD", "body", "body is not JSON")] * 2
    assert answers[3] == ("BAD_FIELD", "backoff", "backoff must be numbers separated by commas, as in 15,15,30")
    assert answers[4]["backoff"] == [[15]]  # the service will say what is allowed


def test_without_the_option_text_is_text(making: Making) -> None:
    schema = "id string, body string"
    assert outcomes(making(schema, [("a", '{"b":1}')]), schema)[0]["body"] == '{"b":1}'


def test_a_number_that_json_has_not_spoils_its_own_row_only(making: Making) -> None:
    schema = "id string, delay double, body array<double>"
    rows = [("a", 1.0, [1.0, None]), ("b", NAN, None), ("c", 1.0, [0.5, -NAN]), ("d", 2.0, [float("inf")])]
    first, *others = outcomes(making(schema, rows), schema)
    assert first["body"] == [1, None]
    assert [answer[:2] for answer in others] == [("BAD_FIELD", "delay"), ("BAD_FIELD", "body"), ("BAD_FIELD", "body")]


def test_a_value_that_cannot_be_read_spoils_its_own_row_only() -> None:
    body = pa.array([b"good", b"\xff", b"too"]).cast(pa.binary()).view(pa.string())
    due = pa.array([0, 0, 2**62]).cast(pa.timestamp("us", "UTC"))
    twice = pa.array([[("a", "1")], [("a", "1"), ("a", "2")]], pa.map_(pa.string(), pa.string()))
    batch = ArrowBatch(pa.record_batch([pa.array(["a", "b", "c"]), body, due], names=["id", "body", "due_at"]))
    answers = outcomes(batch, "id string, body string, due_at timestamp")
    assert answers[0]["body"] == "good"
    assert answers[1] == ("BAD_FIELD", "body", "body cannot be read: it is not UTF-8")
    assert answers[2]["at"] == 4611686018427.388  # the service will refuse it
    batch = ArrowBatch(pa.record_batch([pa.array(["a", "b"]), twice], names=["id", "headers"]))
    assert (
        outcomes(batch, "id string, headers map<string,string>")[1][2]
        == "headers cannot be read: a map has a duplicate key"
    )


def test_rows_get_the_trace_of_the_write_unless_they_have_their_own_or_no_room() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    full = {f"h{number}": "x" for number in range(16)}
    given: list[dict[str, str] | None] = [None, {"shop": "7"}, {"TraceState": "a=1"}, full]
    headers = pa.array([each and [*each.items()] for each in given], pa.map_(pa.string(), pa.string()))
    batch = ArrowBatch(pa.record_batch([pa.array(list("abcd")), headers], names=["id", "headers"]))
    schema = "id string, headers map<string,string>"
    traced = outcomes(batch, schema, traceparent=parent)
    trace = {"traceparent": parent}
    assert [command["headers"] for command in traced] == [trace, {"shop": "7", **trace}, {"TraceState": "a=1"}, full]
    (first, *_) = outcomes(batch, schema, traceparent=parent, tracestate="v=1")
    assert first["headers"] == {**trace, "tracestate": "v=1"}
    with pytest.raises(BadOption, match="option traceparent must be like"):
        outcomes(batch, schema, traceparent="nonsense")


@pytest.mark.parametrize("parent", ["", "nonsense"])
def test_pipelines_ignore_an_invalid_trace_of_the_environment(parent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", parent)
    monkeypatch.setenv("TRACESTATE", "")
    assert write_options(Namespace(batch_size=None, in_flight=None)) == {}


def test_a_column_that_is_only_read_must_be_null(making: Making) -> None:
    schema = "id string, state string, lease bigint"
    first, second = outcomes(making(schema, [("a", None, None), ("b", None, 5)]), schema)
    assert first == {"command": "add", "topic": "t", "id": "a", "body": None}
    assert second == ("BAD_FIELD", "lease", "lease can only be read; it must be null in a write")


def test_the_option_topic_wins_and_if_exists_goes_along(making: Making) -> None:
    schema = "id string, topic string"
    (command,) = outcomes(making(schema, [("a", "column")]), schema, ifExists="REPLACE")
    assert command == {"command": "add", "topic": "t", "id": "a", "body": None, "if_exists": "replace"}


def test_what_null_means(making: Making) -> None:
    schema = "id string, topic string, delay int, body string, ttr double, action string"
    rows = [
        ("plain", "t", 1, None, None, None),
        (None, "t", 1, "x", 1.0, None),
        ("no topic", None, 1, "x", 1.0, "add"),
        ("no delay", "t", None, "x", 1.0, "add"),
        ("moved", None, None, None, 5.0, "Update"),
        ("ended", None, None, None, None, "DELETE "),
        ("what", "t", 1, None, None, "remove"),
    ]
    answers = outcomes(making(schema, rows), schema, topic=None)
    plain = {key: value for key, value in answers[0].items() if value is not None}
    assert plain == {"command": "add", "topic": "t", "id": "plain", "delay": 1}
    assert answers[0]["body"] is None
    assert [answer[:2] for answer in answers[1:4]] == [("BAD_FIELD", each) for each in ("id", "topic", "delay")]
    assert answers[3][2] == "delay is null, which would make the job due at once"
    assert answers[4:6] == [{"command": "update", "id": "moved"}, {"command": "delete", "id": "ended"}]
    assert answers[6] == ("BAD_FIELD", "action", "action must be one of add, delete, update, kick")


def test_a_null_that_matters_is_seen_where_all_rows_have_one(making: Making) -> None:
    schema = "id string, topic string, delay int, ttr double"
    assert outcomes(making(schema, [("a", "t", None, None)]), schema)[0][:2] == ("BAD_FIELD", "delay")
    assert outcomes(making(schema, [("a", None, 1, None)]), schema, topic=None)[0][:2] == ("BAD_FIELD", "topic")
    assert outcomes(making(schema, [(None, "t", 1, None)]), schema)[0][:2] == ("BAD_FIELD", "id")
