"""Turns rows into commands as JSON, and refuses rows that the service could not refuse.

The service checks ranges. This module refuses values that the service would never see, or would misread: a null that
would mean "at once", a number that JSON cannot express, text that is not JSON and would get the whole request refused.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import orjson

from pyspark_jobqueue.connector.columns import Columns
from pyspark_jobqueue.connector.row_batches import UNREADABLE, Batch, endless
from pyspark_jobqueue.connector.write_options import MOST_HEADERS, WriteOptions

ACTIONS = ("add", "delete", "update", "kick")
_NUMBERS = ("delay", "spread", "ttr", "ttl", "retention", "backoff", "body")  # the fields that may contain floats
_OF_UPDATE = ("delay", "at", "body", "priority", "ttl")
_MATTERS = ("id", "topic", "due_at", "delay")  # fields whose nulls must be checked
_DATED = {"due_at": "at", "delay": "delay"}

_Check = Callable[[Mapping[str, Any], int], None]


class Row(NamedTuple):
    """A row that can be sent, with its place in its batch in case the service refuses it."""

    id: str
    command: bytes
    batch: Batch
    number: int


class Refusal(NamedTuple):
    """A row that the connector or the service refused, and why."""

    answer: Mapping[str, Any]
    action: str | None
    id: str | None
    topic: str | None
    batch: Batch
    number: int


class _Bad(Exception):
    def __init__(self, field: str, error: str) -> None:
        self.answer = {"success": False, "error": error, "code": "BAD_FIELD", "field": field}


class Commands:
    """Makes commands from the rows of a task."""

    def __init__(self, columns: Columns, options: WriteOptions) -> None:
        self._columns, self._options = columns, options
        self._dated = next((name for field, name in _DATED.items() if field in columns.places), None)
        self._topic = {"topic": options.topic} if options.topic else {}
        self._fixed = {"command": "add", "topic": None, "body": None}
        if options.if_exists != "keep":
            self._fixed["if_exists"] = options.if_exists
        self._json_text = options.json_text and columns.text_body

    def of(self, batch: Batch) -> Iterator[Row | Refusal]:
        """Yields the command or the refusal for each row, in order."""
        try:
            lists = self._lists(batch)
        except UNREADABLE:  # one bad value makes its whole column unreadable: try the rows one by one
            yield from self._one_by_one(batch)
            return
        doubtful = self._doubtful(batch)
        names = list(lists)
        for number, values in enumerate(zip(*lists.values(), strict=True)):
            yield self._row(dict(zip(names, values, strict=False)), doubtful, batch, number)

    def _one_by_one(self, batch: Batch) -> Iterator[Row | Refusal]:
        for number in range(len(batch)):
            one = batch.one(number)
            refusal = self._unreadable(one)
            yield from [refusal] if refusal else self.of(one)

    def _unreadable(self, one: Batch) -> Refusal | None:
        """The refusal of a row with an unreadable value, or None if all values are readable."""
        readable: dict[str, Any] = {}
        bad = None
        for field in self._columns.places:
            try:
                readable[field] = self._list(one, field)[0]
            except UNREADABLE as error:
                bad = _Bad(field, f"{field} cannot be read: {_why(error)}")
        topic = self._options.topic or readable.get("topic")
        return Refusal(bad.answer, readable.get("action") or "add", readable.get("id"), topic, one, 0) if bad else None

    def _lists(self, batch: Batch) -> dict[str, list[Any]]:
        """The values of each field, by the field's name in the protocol. Omits fields that are null in all rows and
        for which null means absent."""
        return {
            _DATED.get(field, field): self._list(batch, field)
            for field, place in self._columns.places.items()
            if field in _MATTERS or not batch.empty(place)
        }

    def _list(self, batch: Batch, field: str) -> list[Any]:
        place = self._columns.places[field]
        return list(map(unix_s, batch.micros(place))) if field == "due_at" else batch.values(place)

    def _doubtful(self, batch: Batch) -> list[_Check]:
        """The checks that this batch needs. They cost time for each row, and few batches need any."""
        places = self._columns.places
        checks: list[_Check] = []
        if not all(batch.finite(places[field]) for field in _NUMBERS if field in places):
            checks.append(_check_finite)
        for place in self._columns.read_only:
            if not batch.empty(place):
                checks.append(partial(_check_empty, batch, place, self._columns.names[place]))
        return checks

    def _row(self, fields: dict[str, Any], checks: Sequence[_Check], batch: Batch, number: int) -> Row | Refusal:
        action = fields.pop("action", None)
        try:
            action = _action(action)
            if fields["id"] is None:
                raise _Bad("id", "id is null")
            for check in checks:
                check(fields, number)
            command = self._add(fields) if action == "add" else self._other(action, fields)
            return Row(fields["id"], encoded(command), batch, number)
        except _Bad as bad:
            topic = self._options.topic or fields.get("topic")
            return Refusal(bad.answer, action, fields["id"], topic, batch, number)

    def _add(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Null fields are sent as null, which means absent to the service."""
        if self._dated and fields[self._dated] is None:
            field = "due_at" if self._dated == "at" else self._dated
            raise _Bad(field, f"{field} is null, which would make the job due at once")
        command = {**self._fixed, **fields, **self._topic}
        if command["topic"] is None:
            raise _Bad("topic", "topic is null, and option topic is not set")
        if self._options.trace:
            command["headers"] = _traced(command.get("headers") or {}, self._options.trace)
        return self._formed(command)

    def _other(self, action: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Null fields are left out: a null body would count as a new body."""
        names = _OF_UPDATE if action == "update" else ()
        given = {name: fields[name] for name in names if fields.get(name) is not None}
        return self._formed({"command": action, "id": fields["id"], **given})

    def _formed(self, command: dict[str, Any]) -> dict[str, Any]:
        if self._json_text and command.get("body") is not None:
            command["body"] = _json(command["body"])
        if isinstance(command.get("backoff"), str):
            command["backoff"] = _ladder(command["backoff"])
        return command


def _traced(headers: Mapping[str, str], trace: Mapping[str, str]) -> Mapping[str, str]:
    """The headers of a row with those of the trace, unless the row has its own trace, or has no room for them."""
    has_own = any(name.lower() in ("traceparent", "tracestate") for name in headers)
    return headers if has_own or len(headers) + len(trace) > MOST_HEADERS else {**headers, **trace}


def encoded(value: Any) -> bytes:
    """A value of a row as JSON."""
    return orjson.dumps(value, _plain, orjson.OPT_UTC_Z)


def unix_s(micros: int | None) -> float | None:
    """An instant in unix seconds, rounded up to the millisecond. A time before 1970 becomes 0: both are in the past."""
    return None if micros is None else max(0, -(-micros // 1000)) / 1000


def _action(value: str | None) -> str:
    if value is None:
        return "add"
    action = value.strip().lower()
    if action not in ACTIONS:
        raise _Bad("action", f"action must be one of {', '.join(ACTIONS)}")
    return action


def _check_empty(batch: Batch, place: int, name: str, fields: Mapping[str, Any], number: int) -> None:
    if not batch.one(number).empty(place):
        raise _Bad(name, f"{name} can only be read; it must be null in a write")


def _check_finite(fields: Mapping[str, Any], number: int) -> None:
    for field in _NUMBERS:
        if endless(fields.get(field)):
            raise _Bad(field, f"{field} contains NaN or an infinite number, which JSON cannot express")


def _json(text: str) -> orjson.Fragment:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        raise _Bad("body", "body is not JSON") from None
    return orjson.Fragment(text)


def _ladder(text: str) -> list[Any]:
    """A backoff like `15,15,30`."""
    try:
        return list(orjson.loads(f"[{text}]"))
    except orjson.JSONDecodeError:
        raise _Bad("backoff", "backoff must be numbers separated by commas, as in 15,15,30") from None


def _plain(value: Any) -> Any:
    """Convert a value of a type that orjson does not support."""
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} cannot become JSON")


def _why(error: Exception) -> str:
    """Why a value is unreadable, without quoting the value, which may be secret."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return "a map has a duplicate key" if isinstance(error, KeyError) else "a time is out of range"
