"""The rows of a query in files, of each shard in its own."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from jobqueue.journal.export.folder import Folder, Growing, Part, Place
from jobqueue.journal.export.forms import behind


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
        if shard in self._open and self._open[shard][0].is_full and self._named is None:
            growing, last = self._open[shard]
            rest = table.filter(behind(table["ms"], table["seq"], last))
            growing.add(table.slice(0, len(table) - len(rest)))  # an entry is in one file
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
