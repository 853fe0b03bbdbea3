"""Handles refused rows as option onError says: fail the task, skip the row, or write it to a local or remote folder.

A folder is a path, or a URI that pyarrow knows (file://, s3://, gs://, hdfs://). s3a:// and s3n:// count as s3://.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

from pyspark_jobqueue.connector.columns import Columns
from pyspark_jobqueue.connector.commands import Refusal, encoded
from pyspark_jobqueue.connector.options import without_secret
from pyspark_jobqueue.connector.row_batches import UNREADABLE, Batch
from pyspark_jobqueue.errors import BadOption, Refused

# Some of Spark's URIs have a single slash: `dbfs:/bad` does not mean a local folder `dbfs:`.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class Folder:
    """A folder, created when the first file is written."""

    def __init__(self, where: str, *inner: str) -> None:
        from pyarrow import fs  # noqa: PLC0415 - heavy

        uri = where if _URI.match(where) else Path(where).absolute().as_uri()
        self._files, path = fs.FileSystem.from_uri(re.sub("^s3[an]://", "s3://", uri))  # Hadoop's names for s3
        self._path = "/".join((path.rstrip("/"), *inner))

    @staticmethod
    def check(where: str, option: str) -> None:
        """Raises BadOption if `where` cannot be a folder."""
        try:
            Folder(where)
        except Exception as error:  # pyarrow raises many kinds of exceptions
            shown = without_secret(where)
            why = str(error).replace(where, shown)
            raise BadOption(f"option {option} must be a folder or the URI of one, not {shown!r}: {why}") from None

    def write(self, name: str) -> PartialFile:
        """Begin a file."""
        self._files.create_dir(self._path, recursive=True)
        return PartialFile(self._files, self._path, name)

    def drop(self, name: str) -> None:
        """Delete a file, if it exists."""
        path = f"{self._path}/{name}"
        if self._files.get_file_info(path).is_file:
            self._files.delete_file(path)


class PartialFile:
    """A file that is being written. It gets its name once it is complete; until then its name starts with an
    underscore, which makes Spark ignore it."""

    def __init__(self, files: Any, path: str, name: str) -> None:
        self._files = files
        self._path = f"{path}/{name}"
        self._fresh = f"{path}/_{name}.{uuid.uuid4().hex}"
        self._stream = files.open_output_stream(self._fresh)

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    def keep(self) -> None:
        """Publish the complete file, in place of an older one."""
        self._stream.close()
        self._files.move(self._fresh, self._path)

    def drop(self) -> None:
        """Discard the file."""
        self._stream.close()
        self._files.delete_file(self._fresh)


class RefusedRows:
    """The refused rows of a task. Call `keep` when the task has succeeded, `drop` when it has failed."""

    def __init__(self, on_error: str, columns: Columns, run: str, partition: int) -> None:
        self._on_error, self._columns = on_error, columns
        self._folder = None if on_error in ("fail", "skip") else Folder(on_error, run)
        self._name = f"part-{partition:05}.jsonl"
        self._file: PartialFile | None = None

    def take(self, refusal: Refusal) -> None:
        """Skip or write a refused row. Raises Refused if `on_error` is fail."""
        if self._on_error == "fail":
            raise Refused(refusal.answer, self._where(refusal))
        if self._folder is None:
            return
        if self._file is None:
            self._file = self._folder.write(self._name)
        self._file.write(self._line(refusal))

    def keep(self) -> None:
        """Publish the file, once all rows are done. Without a file, delete the file of an earlier attempt."""
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
