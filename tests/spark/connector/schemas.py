"""Schemas for tests."""

from __future__ import annotations

from pyspark.sql.types import StructType


def parsed(ddl: str) -> StructType:
    """A schema from the text that SQL has for it; wants a session of Spark."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema
