"""jobqueue, a delay-queue service, from Spark: `format("jobqueue")` to read and write, and ready-made pipelines.

Spark looks for a `DefaultSource` in every installed package whose name begins with `pyspark_`, and imports them all
whenever it looks up a format. So nothing heavy is imported here.
"""

from pyspark_jobqueue.connector.source import DefaultSource

__all__ = ["DefaultSource"]
