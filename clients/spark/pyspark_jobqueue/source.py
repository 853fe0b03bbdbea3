"""The data source `jobqueue`: what Spark asks for a reader and for writers."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """`spark.read.format("jobqueue")`, `df.write.format("jobqueue").mode("append")`, `df.writeStream`, and tables in
    SQL that are `USING jobqueue`. Options and columns: README.md."""

    @classmethod
    def name(cls) -> str:
        return "jobqueue"
