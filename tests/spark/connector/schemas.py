"""Schemas from DDL."""

from __future__ import annotations

from pyspark.sql.types import StructType


def parsed(ddl: str) -> StructType:
    """The schema that DDL describes. Needs a Spark session."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema
