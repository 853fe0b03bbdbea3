"""Looks ids up by `get`, in batches, from the tasks.

A walk over a topic may miss a job that moves meanwhile, and does not see one that has ended; `get` settles both.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructType

from pyspark_jobqueue.connector.options import Given, Target
from pyspark_jobqueue.connector.service import Answer, Service

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_BATCH = 1000
_FOUND = {"found_state": StringType, "found_topic": StringType, "found_due": LongType, "found_created": LongType}


def look_up(frame: DataFrame, connection: Mapping[str, str]) -> DataFrame:
    """The frame with what was found for the rows whose column `asked` is true: `found_state` (null for an unknown id),
    `found_topic`, and `found_due` and `found_created` in unix milliseconds."""
    schema = StructType([*frame.schema.fields])
    for name, kind in _FOUND.items():
        schema = schema.add(name, kind())
    return frame.mapInArrow(functools.partial(_with_answers, Target.of(Given(connection))), schema)


def _with_answers(target: Target, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415 - on the executors

    service = Service(target)
    for batch in batches:
        ids = batch.column("id").to_pylist()
        asked = batch.column("asked").to_pylist()
        known = answers(service, [each for each, wanted in zip(ids, asked, strict=True) if wanted and each is not None])
        found = [known.get(each, {}) if wanted else {} for each, wanted in zip(ids, asked, strict=True)]
        yield pa.RecordBatch.from_arrays(
            [
                *batch.columns,
                pa.array([answer.get("state") for answer in found], pa.string()),
                pa.array([answer.get("topic") for answer in found], pa.string()),
                pa.array([_ms(answer.get("due")) for answer in found], pa.int64()),
                pa.array([_ms(answer.get("created")) for answer in found], pa.int64()),
            ],
            [*batch.schema.names, *_FOUND],
        )
    service.close()


def answers(service: Service, ids: Iterable[str]) -> dict[str, Answer]:
    """The answer of `get` for each known id. Raises like `Service.batch`."""
    import orjson  # noqa: PLC0415 - on the executors

    left, found = list(dict.fromkeys(ids)), {}
    while left:
        asked, later = left[:_BATCH], left[_BATCH:]
        got = service.batch([orjson.dumps({"command": "get", "id": each}) for each in asked])
        # One request answers with a bounded total of bodies: ids beyond that are asked for again.
        again = [each for each, answer in zip(asked, got, strict=True) if answer.get("code") == "TOO_LARGE"]
        left = again + later
        found.update({each: answer for each, answer in zip(asked, got, strict=True) if answer["success"]})
    return found


def _ms(seconds: Any) -> int | None:
    return None if seconds is None else round(seconds * 1000)
