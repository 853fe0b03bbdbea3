"""The folder that an export writes to, on this machine or in an object store. Each file appears only when it is
complete, and says what it contains. The rows of a query go to the files of their shards.

Names of incomplete files, and of files without data, begin with an underscore: Spark and others skip them.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from pyarrow import parquet as pq

from jobqueue.journal.export.forms import behind

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_OBJECT_STORES = ("s3", "gcs", "abfs")  # these cannot rename: a complete file is uploaded
_LAST, _SOURCE = b"jobqueue.last", b"jobqueue.source"
_CLOSED, _LOCK = "_CLOSED", "_lock"
_ROW_GROUP = 65_536  # rows
_MOST_ROWS = 1_000_000  # rows of a file, which may exceed this by one batch


class Place(NamedTuple):
    """The place of an entry in the stream of a shard."""

    ms: int
    seq: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"


class Part(NamedTuple):
    """A file of a shard: `part-<shard>-<first entry>.parquet`."""

    shard: int
    first: Place
    mark: str = ""
    """`-late` for a file of events that came late."""

    @property
    def name(self) -> str:
        return f"part-{self.shard}-{self.first}{self.mark}.parquet"

    @classmethod
    def named(cls, name: str) -> Part | None:
        found = re.fullmatch(r"part-(\d+)-(\d+)-(\d+)(-late)?\.parquet", name)
        return found and cls(int(found[1]), Place(int(found[2]), int(found[3])), found[4] or "")


class Foreign(Exception):
    """This export cannot use the folder; the message says why."""


class Folder:
    """A folder of Parquet files of one source."""

    def __init__(self, where: str, source: str) -> None:
        """Raises Foreign for a URI that pyarrow does not know."""
        self._source = source
        try:
            self._files, path = fs.FileSystem.from_uri(where if _URI.match(where) else Path(where).absolute().as_uri())
        except Exception as error:  # pyarrow raises many kinds
            raise Foreign(f"no folder can be reached as {where}: {error}") from None
        self._path = path.rstrip("/")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other exports from writing to this folder meanwhile; only possible for a folder on this machine. Raises
        Foreign if another export is writing."""
        self._files.create_dir(self._path, recursive=True)
        if self._files.type_name != "local":
            yield
            return
        with Path(self._path, _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Foreign(f"another export is writing to {self._path}") from None
            yield

    def parts(self, inner: str) -> list[Part]:
        """The files in a folder inside this one, by shard and in the order of their entries."""
        chosen = fs.FileSelector(f"{self._path}/{inner}", allow_not_found=True)
        found = (Part.named(each.base_name) for each in self._files.get_file_info(chosen))
        return sorted(part for part in found if part)

    def footer(self, inner: str, part: Part) -> tuple[Place, int]:
        """The last entry in a file, and the number of its rows. Raises Foreign."""
        path = f"{self._path}/{inner}/{part.name}"
        found = pq.read_metadata(path, filesystem=self._files)
        told = found.metadata or {}
        if _LAST not in told or told.get(_SOURCE) != self._source.encode():
            of = told.get(_SOURCE, b"another program").decode()
            raise Foreign(f"{path} is of {of}: each source needs a folder of its own")
        return Place(*map(int, told[_LAST].split(b"-"))), found.num_rows

    def read(self, inner: str, part: Part, columns: list[str], between: tuple[int, int]) -> pa.Table:
        """Some columns of a file, for the rows whose entry has an `ms` between the two in `between`, inclusive."""
        low, high = between
        return pq.read_table(
            f"{self._path}/{inner}/{part.name}",
            columns=columns,
            filesystem=self._files,
            partitioning=None,
            filters=[("ms", ">=", low), ("ms", "<=", high)],
        )

    def is_closed(self, inner: str) -> bool:
        return bool(self._files.get_file_info(f"{self._path}/{inner}/{_CLOSED}").is_file)

    def close(self, inner: str) -> None:
        """Mark a folder as closed: it gets no more files."""
        self._files.create_dir(f"{self._path}/{inner}", recursive=True)
        self._files.open_output_stream(f"{self._path}/{inner}/{_CLOSED}").close()

    def drop(self, inner: str, part: Part) -> None:
        self._files.delete_file(f"{self._path}/{inner}/{part.name}")

    def begin(self, inner: str, part: Part, schema: pa.Schema) -> Growing:
        """Begin a file, which replaces an existing one with the same name."""
        self._files.create_dir(f"{self._path}/{inner}", recursive=True)
        path = f"{self._path}/{inner}/{part.name}"
        if self._files.type_name in _OBJECT_STORES:
            return Growing(fs.LocalFileSystem(), _temporary(), self._files, path, schema, self._source)
        return Growing(self._files, f"{self._path}/{inner}/_{part.name}", self._files, path, schema, self._source)


class Growing:
    """A file that is being written, elsewhere or under another name."""

    def __init__(self, here: Any, hidden: str, there: Any, path: str, schema: pa.Schema, source: str) -> None:
        self._here, self._hidden, self._there, self._path, self._source = here, hidden, there, path, source
        self._stream = here.open_output_stream(hidden)
        self._writer = pq.ParquetWriter(self._stream, schema, compression="zstd")
        self._held: list[pa.Table] = []
        self._held_rows = self._rows = 0

    @property
    def is_full(self) -> bool:
        return self._rows >= _MOST_ROWS

    def add(self, table: pa.Table) -> None:
        self._held.append(table)
        self._held_rows += len(table)
        self._rows += len(table)
        if self._held_rows >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.concat_tables(self._held), row_group_size=self._held_rows)
        self._held, self._held_rows = [], 0

    def finish(self, last: Place) -> int:
        """Complete the file and make it appear. `last`: the last entry in the file. Returns the number of its rows."""
        self._flush()
        self._writer.add_key_value_metadata({_LAST: str(last).encode(), _SOURCE: self._source.encode()})
        self._writer.close()
        self._stream.close()
        if self._here.type_name == "local":
            _sync(self._hidden)
        if self._here is self._there:
            self._here.move(self._hidden, self._path)
        else:
            fs.copy_files(self._hidden, self._path, self._here, self._there)
            self._here.delete_file(self._hidden)
        return self._rows

    def abandon(self) -> None:
        """Delete the incomplete file."""
        self._writer.close()
        self._stream.close()
        self._here.delete_file(self._hidden)


def _temporary() -> str:
    file, path = tempfile.mkstemp(".parquet", "jobqueue-")
    os.close(file)
    return path


def _sync(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class ShardFiles:
    """Writes the files of one folder. The rows of each shard must come in the order of their entries.

    `named`: for each shard, the place that its only file is named after; None to name files after their first entries.
    `mark`: a suffix of the names.
    """

    def __init__(self, folder: Folder, inner: str, named: dict[int, Place] | None = None, mark: str = "") -> None:
        self._folder, self._inner, self._named, self._mark = folder, inner, named, mark
        self._open: dict[int, tuple[Growing, Place]] = {}
        self.rows = self.files = 0
        """Counted for complete files only."""

    def add(self, shard: int, table: pa.Table) -> None:
        """Write rows of a shard."""
        if shard in self._open and self._open[shard][0].is_full and self._named is None:
            growing, last = self._open[shard]
            rest = table.filter(behind(table["ms"], table["seq"], last))
            growing.add(table.slice(0, len(table) - len(rest)))  # an entry is never split between two files
            self._finish(shard)
            table = rest
        if len(table):
            self._add(shard, table)

    def _add(self, shard: int, table: pa.Table) -> None:
        if shard not in self._open:
            part = Part(shard, self._named[shard] if self._named else _place(table, 0), self._mark)
            self._open[shard] = self._folder.begin(self._inner, part, table.schema), part.first
        growing, _ = self._open[shard]
        growing.add(table)
        self._open[shard] = growing, _place(table, len(table) - 1)

    def _finish(self, shard: int) -> None:
        growing, last = self._open.pop(shard)
        self.rows += growing.finish(last)
        self.files += 1

    def finish(self) -> None:
        """Complete all files, once all rows were added."""
        for shard in list(self._open):
            self._finish(shard)

    def abandon(self) -> None:
        """Delete the incomplete files."""
        while self._open:
            _, (growing, _) = self._open.popitem()
            growing.abandon()


def by_shard(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each shard."""
    shards = pc.unique(table["shard"]).to_pylist()
    for shard in shards:
        yield shard, table if len(shards) == 1 else table.filter(pc.equal(table["shard"], shard))


def _place(table: pa.Table, row: int) -> Place:
    return Place(table["ms"][row].as_py(), table["seq"][row].as_py())
