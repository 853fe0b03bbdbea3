"""Rows of Spark become jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.serving import Serving
from tests.spark.writing import counts, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DUE = datetime(2031, 5, 6, 7, 8, 9, 124_000, UTC).timestamp()


def test_every_column_arrives_as_its_field(spark: SparkSession, serving: Serving, topic: str, folder: Path) -> None:
    rows = spark.sql(
        """
        SELECT 'full' AS id, timestamp'2031-05-06 07:08:09.123001+00:00' AS due_at,
          named_struct('order', 7, 'total', 12.30BD, 'at', timestamp'2026-01-02 03:04:05.678901+00:00',
            'day', date'2026-01-02', 'raw', X'00ff', 'none', CAST(NULL AS INT),
            'list', array(1.5D, NULL), 'map', map('a', array(timestamp'2026-01-02 00:00:00+00:00'))) AS body,
          12.5D AS ttr, 86400BD AS ttl, 300 AS retention, 7 AS priority, 3S AS tries, array(15, 30) AS backoff,
          map('trace', 'x') AS headers, array('a', 'b') AS tags, 'ADD' AS action
        UNION ALL
        SELECT 'bare', timestamp'1969-12-31 23:59:59+00:00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
        """
    )
    assert counts(write(rows, serving, folder, topic=topic)) == {"rows": 2, "accepted": 2}
    full, bare = serving.ask("get", id="full"), serving.ask("get", id="bare")
    assert full["value"] == {
        "order": 7,
        "total": 12.3,
        "at": "2026-01-02T03:04:05.678901Z",
        "day": "2026-01-02",
        "raw": "AP8=",
        "none": None,
        "list": [1.5, None],
        "map": {"a": ["2026-01-02T00:00:00Z"]},
    }
    given = {"topic": topic, "state": "delayed", "due": DUE, "ttr": 12.5, "ttl": 86400, "retention": 300}
    more = {"priority": 7, "tries": 3, "backoff": [15, 30], "headers": {"trace": "x"}, "tags": ["a", "b"]}
    assert {name: full[name] for name in (given | more)} == given | more
    assert bare["value"] is None
    assert (bare["state"], bare["ttr"], bare["priority"], bare["tries"]) == ("ready", 60, 4, 16)


@pytest.mark.parametrize("parts", [1, 3])
def test_many_rows_and_all_of_them_again(
    spark: SparkSession, serving: Serving, topic: str, folder: Path, parts: int
) -> None:
    rows = spark.range(0, 5000, 1, parts).selectExpr(
        f"'{topic}:' || id AS id", "3600 AS delay", "'text ' || id AS body"
    )
    assert counts(write(rows, serving, folder, topic=topic)) == {"rows": 5000, "accepted": 5000}
    assert counts(write(rows, serving, folder, topic=topic)) == {"rows": 5000, "existing": 5000}
    assert serving.totals(topic)["created"] == 5000
