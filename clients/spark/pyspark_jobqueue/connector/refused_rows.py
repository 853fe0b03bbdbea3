"""Handles refused rows as option onError says: fail the task, skip the row, or write it to a folder."""

from __future__ import annotations

from typing import Any

from pyspark_jobqueue.connector.columns import Columns
from pyspark_jobqueue.connector.commands import Refusal, encoded
from pyspark_jobqueue.connector.folders import Folder, PartialFile
from pyspark_jobqueue.connector.row_batches import UNREADABLE, Batch
from pyspark_jobqueue.errors import Refused


class RefusedRows:
    """The refused rows of a task. Call `keep` when it succeeded, `drop` when it failed."""

    def __init__(self, on_error: str, columns: Columns, run: str, partition: int) -> None:
        self._on_error, self._columns = on_error, columns
        self._folder = None if on_error in ("fail", "skip") else Folder(on_error, run)
        self._name = f"part-{partition:05}.jsonl"
        self._file: PartialFile | None = None

    def take(self, refusal: Refusal) -> None:
        """Raises Refused if the query is to fail."""
        if self._on_error == "fail":
            raise Refused(refusal.answer, self._where(refusal))
        if self._folder is None:
            return
        if self._file is None:
            self._file = self._folder.write(self._name)
        self._file.write(self._line(refusal))

    def keep(self) -> None:
        """All rows are done: publish the file, and remove what an earlier attempt left."""
        if self._file:
            self._file.keep()
        elif self._folder:
            self._folder.drop(self._name)

    def drop(self) -> None:
        """The task failed: discard the file."""
        if self._file:
            self._file.drop()

    def _where(self, refusal: Refusal) -> str:
        field = refusal.answer.get("field")
        column = f", column {self._columns.name(field)}" if field else ""
        return f"row with id {refusal.id!r}{column}"

    def _line(self, refusal: Refusal) -> bytes:
        field = refusal.answer.get("field")
        line = {
            "id": refusal.id,
            "topic": refusal.topic,
            "action": refusal.action,
            "code": refusal.answer.get("code"),
            "error": refusal.answer.get("error"),
            "field": self._columns.name(field) if field else None,
            "row": self._row(refusal.batch.one(refusal.number)),
        }
        return encoded(line) + b"\n"

    def _row(self, one: Batch) -> dict[str, Any]:
        return {name: _value(one, place) for place, name in enumerate(self._columns.names)}


def _value(one: Batch, place: int) -> Any:
    try:
        return one.values(place)[0]
    except UNREADABLE:
        return None
