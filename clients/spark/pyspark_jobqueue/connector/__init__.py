"""The implementation of `format("jobqueue")`: Spark finds `DefaultSource`, and asks it for a `reader` or a `writer`.

Reads: `read_options` says what to fetch, and `reader` turns the answers of `service` into Arrow. `history` reads the
database of a journal instead.

Writes: `columns` and `write_options` check the query on the driver. In each task, `write_task` turns the rows
(`row_batches`) into `commands`, sends these as `ordered_requests` within the rate limit, sets `refused_rows` aside, and
counts the answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Serves `spark.read.format("jobqueue")`, `df.write.format("jobqueue").mode("append")`, `df.writeStream`, and SQL
    tables `USING jobqueue`. README.md lists options and columns."""

    @classmethod
    def name(cls) -> str:
        return "jobqueue"

    def schema(self) -> str:
        """The columns of a read when the query names none. Raises BadOption."""
        from pyspark_jobqueue.connector.columns import ddl  # noqa: PLC0415 - see pyspark_jobqueue's docstring
        from pyspark_jobqueue.connector.read_options import columns  # noqa: PLC0415

        return ddl(columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_jobqueue.connector.reader import reader  # noqa: PLC0415

        return reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_jobqueue.connector.writer import batch_writer  # noqa: PLC0415 - see pyspark_jobqueue's docstring

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        # Spark passes overwrite=True for output mode complete, which sends the same rows again and again: the ids make
        # that harmless.
        from pyspark_jobqueue.connector.writer import stream_writer  # noqa: PLC0415

        return stream_writer(self.options, schema)
