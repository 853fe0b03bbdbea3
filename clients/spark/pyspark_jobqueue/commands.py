"""A row becomes a command, as JSON; or it is refused here, where the service could not say it.

The service judges ranges. What is refused here it would never see, or see as something else: a null where it would
mean "at once", a number that JSON has not, text that is not JSON and would spoil its whole request.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import orjson

from pyspark_jobqueue.columns import Columns
from pyspark_jobqueue.row_batches import UNREADABLE, Batch, endless
from pyspark_jobqueue.write_options import WriteOptions

ACTIONS = ("add", "delete", "update", "kick")
_SECONDS = ("delay", "ttr", "ttl", "retention")
_NUMBERS = (*_SECONDS, "backoff", "body")  # the fields that may have floats in them
_OF_ADD = (*_SECONDS, "at", "body", "priority", "tries", "backoff", "headers", "tags")
_OF_UPDATE = ("delay", "at", "body", "priority", "ttl")
_OF = {"add": _OF_ADD, "update": _OF_UPDATE, "delete": (), "kick": ()}


class Row(NamedTuple):
    """A row that can be sent. Where it stands is kept for the case that the service refuses it."""

    id: str
    command: bytes
    batch: Batch
    number: int


class Refusal(NamedTuple):
    """A row that was refused, by us or by the service, and why."""

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
    """What makes commands of the rows of a task."""

    def __init__(self, columns: Columns, options: WriteOptions) -> None:
        self._columns, self._options = columns, options
        self._dated = next((field for field in ("due_at", "delay") if field in columns.places), None)
        self._fixed = {} if options.if_exists == "keep" else {"if_exists": options.if_exists}

    def of(self, batch: Batch) -> Iterator[Row | Refusal]:
        """Of each row its command or its refusal, in their order."""
        try:
            lists = self._lists(batch)
        except UNREADABLE:  # one value spoils the column: then each row stands for itself
            yield from self._one_by_one(batch)
            return
        doubtful = self._doubtful(batch)
        names = list(lists)
        for number, values in enumerate(zip(*lists.values(), strict=True)):
            yield self._row(dict(zip(names, values, strict=True)), doubtful, batch, number)

    def _one_by_one(self, batch: Batch) -> Iterator[Row | Refusal]:
        for number in range(len(batch)):
            one = batch.one(number)
            try:
                self._lists(one)
            except UNREADABLE:
                yield Refusal(self._unreadable(one), None, None, None, one, 0)
            else:
                yield from self.of(one)

    def _unreadable(self, one: Batch) -> Mapping[str, Any]:
        for field in self._columns.places:
            try:
                self._list(one, field)
            except UNREADABLE as error:
                return _Bad(field, f"{field} cannot be read: {_why(error)}").answer
        raise AssertionError("a row was not readable, and each of its columns is")

    def _lists(self, batch: Batch) -> dict[str, list[Any]]:
        """The values of the fields, by their names in the protocol."""
        return {"at" if field == "due_at" else field: self._list(batch, field) for field in self._columns.places}

    def _list(self, batch: Batch, field: str) -> list[Any]:
        place = self._columns.places[field]
        return list(map(unix_s, batch.micros(place))) if field == "due_at" else batch.values(place)

    def _doubtful(self, batch: Batch) -> list[Callable[[dict[str, Any], int], None]]:
        """The checks that only few batches need, and that cost time for each row."""
        places = self._columns.places
        checks: list[Callable[[dict[str, Any], int], None]] = []
        if not all(batch.finite(places[field]) for field in _NUMBERS if field in places):
            checks.append(_check_finite)
        for place in self._columns.read_only:
            if not batch.empty(place):
                checks.append(partial(_check_empty, batch, place, self._columns.names[place]))
        return checks

    def _row(
        self, fields: dict[str, Any], checks: Sequence[Callable[[dict[str, Any], int], None]], batch: Batch, number: int
    ) -> Row | Refusal:
        action = fields.pop("action", None)
        job_id = fields["id"]
        try:
            action = _action(action)
            self._check(action, fields)
            for check in checks:
                check(fields, number)
            return Row(job_id, self._command(action, fields), batch, number)
        except _Bad as bad:
            return Refusal(bad.answer, action, job_id, self._options.topic or fields.get("topic"), batch, number)

    def _check(self, action: str, fields: Mapping[str, Any]) -> None:
        if fields["id"] is None:
            raise _Bad("id", "id is null")
        if action != "add":
            return
        if self._options.topic is None and fields.get("topic") is None:
            raise _Bad("topic", "topic is null, and there is no option topic")
        if self._dated and fields["at" if self._dated == "due_at" else "delay"] is None:
            raise _Bad(self._dated, f"{self._dated} is null: the job would be due at once")

    def _command(self, action: str, fields: Mapping[str, Any]) -> bytes:
        command: dict[str, Any] = {"command": action, "id": fields["id"]}
        if action == "add":
            command.update(self._fixed, topic=self._options.topic or fields["topic"], body=None)
        for name in _OF[action]:
            value = fields.get(name)
            if value is not None:
                command[name] = value
        if self._options.json_text and self._columns.text_body and command.get("body") is not None:
            command["body"] = _json(command["body"])
        if isinstance(command.get("backoff"), str):
            command["backoff"] = _ladder(command["backoff"])
        return encoded(command)


def encoded(value: Any) -> bytes:
    """A value of a row as JSON."""
    return orjson.dumps(value, _plain, orjson.OPT_UTC_Z)


def unix_s(micros: int | None) -> float | None:
    """An instant in unix seconds, rounded up to the millisecond; what is before 1970 is past, as 1970 is."""
    return None if micros is None else max(0, -(-micros // 1000)) / 1000


def _action(value: str | None) -> str:
    action = "add" if value is None else value.strip().lower()
    if action not in ACTIONS:
        raise _Bad("action", f"action must be one of {', '.join(ACTIONS)}")
    return action


def _check_empty(batch: Batch, place: int, name: str, fields: dict[str, Any], number: int) -> None:
    if not batch.one(number).empty(place):
        raise _Bad(name, f"{name} is only read; it must be null in a write")


def _check_finite(fields: dict[str, Any], number: int) -> None:
    for field in _NUMBERS:
        if endless(fields.get(field)):
            raise _Bad(field, f"{field} has a number that is infinite or none (NaN): JSON has no such numbers")


def _json(text: str) -> orjson.Fragment:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        raise _Bad("body", "body is not JSON") from None
    return orjson.Fragment(text)


def _ladder(text: str) -> list[Any]:
    """`15,15,30`"""
    try:
        return list(orjson.loads(f"[{text}]"))
    except orjson.JSONDecodeError:
        raise _Bad("backoff", "backoff must be numbers with commas between them, as in 15,15,30") from None


def _plain(value: Any) -> Any:
    """What orjson does not know by itself."""
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"JSON has no {type(value).__name__}")


def _why(error: Exception) -> str:
    """Without the value: it may be secret."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return "a key is in a map twice" if isinstance(error, KeyError) else "a time is out of range"
