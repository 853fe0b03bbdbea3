"""The rows of a query in files, of each shard in its own."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from jobqueue.journal.export.folder import Folder, Growing, Part, Place


class ShardFiles:
    """Writes the files of one folder. The rows of each shard come in the order of their entries.

    `named`: what the file of a shard is named after, if not after its first entry; it is one file then. `mark`: at the
    end of the names.
    """

    def __init__(self, folder: Folder, inner: str, named: dict[int, Place] | None = None, mark: str = "") -> None:
        self._folder, self._inner, self._named, self._mark = folder, inner, named, mark
        self._open: dict[int, tuple[Growing, Place]] = {}
        self.rows = self.files = 0
        """Of the files that are whole."""

    def add(self, shard: int, table: pa.Table) -> None:
        """Write rows of a shard."""
        if not len(table):
            return
        first = _place(table, 0)
        growing, before = self._open.get(shard, (None, first))
        if growing and growing.is_full and first != before and self._named is None:  # an entry is in one file
            self._finish(shard)
            growing = None
        if growing is None:
            part = Part(shard, self._named[shard] if self._named else first, self._mark)
            growing = self._folder.begin(self._inner, part, table.schema)
        growing.add(table)
        self._open[shard] = growing, _place(table, len(table) - 1)

    def _finish(self, shard: int) -> None:
        growing, last = self._open.pop(shard)
        self.rows += growing.finish(last)
        self.files += 1

    def finish(self) -> None:
        """All rows were added."""
        for shard in list(self._open):
            self._finish(shard)

    def abandon(self) -> None:
        """Leave away what is not whole."""
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
