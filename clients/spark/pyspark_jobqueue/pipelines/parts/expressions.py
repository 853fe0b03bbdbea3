"""SQL expressions that come by flags, checked against their input before anything runs."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from pyspark_jobqueue.errors import BadOption

# In front of what a driver of JDBC or a file system says: how Python asked Java, and the class of the error.
_OF_PY4J = re.compile(r"An error occurred while calling \S+\n: (?:[\w.$]+: )?")


def column(frame: DataFrame, flag: str, text: str) -> Column:
    """The column that the text of a flag makes of the frame. Raises BadOption, which names the flag."""
    return typed(frame, flag, text)[0]


def typed(frame: DataFrame, flag: str, text: str) -> tuple[Column, DataType]:
    """The column and its type. Raises BadOption."""
    try:
        made = F.expr(text)
        fields = frame.select("*", made).schema.fields[len(frame.columns) :]  # beside others: no aggregate
    except PySparkException as error:
        raise BadOption(f"{flag}: {first_line(error)}") from None
    if len(fields) != 1:
        raise BadOption(f"{flag} must be one column, not {len(fields)}: {text}")
    return made, fields[0].dataType


def first_line(error: Exception) -> str:
    """What Spark says in front of its plans and traces."""
    return (_OF_PY4J.sub("", str(error).strip()).splitlines() or [type(error).__name__])[0]
