"""SQL expressions given by flags, checked against their input before anything runs."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from pyspark_jobqueue.errors import BadOption

# Precedes the message of a JDBC driver or a file system: how Python called Java, and the class of the error.
_PY4J_PREFIX = re.compile(r"An error occurred while calling \S+\n: (?:[\w.$]+: )?")


def column(frame: DataFrame, flag: str, text: str) -> Column:
    """The column that a flag's expression makes of the frame. Raises BadOption, which names the flag."""
    return typed(frame, flag, text)[0]


def typed(frame: DataFrame, flag: str, text: str) -> tuple[Column, DataType]:
    """The column and its type. Raises BadOption."""
    try:
        made = F.expr(text)
        fields = frame.select("*", made).schema.fields[len(frame.columns) :]  # next to others: no aggregates
    except PySparkException as error:
        raise BadOption(f"{flag}: {first_line(error)}") from None
    if len(fields) != 1:
        raise BadOption(f"{flag} must be one column, not {len(fields)}: {text}")
    return made, fields[0].dataType


def first_line(error: Exception) -> str:
    """The first line of an error, without Spark's plans and stack traces."""
    return (_PY4J_PREFIX.sub("", str(error).strip()).splitlines() or [type(error).__name__])[0]
