"""Spark and jobqueue, a delay-queue service: `format("jobqueue")` for reading and writing, and ready pipelines.

Spark finds `DefaultSource` by itself in every installed package whose name begins with `pyspark_`, and imports those
whenever it looks a format up: so nothing heavy is imported here.
"""

from pyspark_jobqueue.connector.source import DefaultSource

__all__ = ["DefaultSource"]
