"""Writes through the connector, and their totals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write(rows: DataFrame, serving: Serving, folder: Path, **options: Any) -> dict[str, Any]:
    """Write, and return the totals that the write left in the folder."""
    before = set(folder.glob("write-*.json"))
    given = {"url": serving.url, "reportPath": str(folder), **options}
    rows.write.format("jobqueue").options(**given).mode("append").save()
    (fresh,) = set(folder.glob("write-*.json")) - before
    return dict(json.loads(fresh.read_text()))


def counts(reported: dict[str, Any]) -> dict[str, int]:
    """The counts that are not 0."""
    names = ("rows", "accepted", "existing", "cancelled", "dead", "gone", "refused", "retries")
    return {name: reported[name] for name in names if reported[name]}
