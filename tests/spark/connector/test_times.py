"""Times as they are typed into options and flags."""

from __future__ import annotations

import pytest
from pyspark_jobqueue.connector.options import moment


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 994_600), ("7d", 395_200), ("1970-01-02T00:00", 86_400), ("1970-01-02T01:00+01:00", 86_400)],
)
def test_a_time_is_one_or_so_long_ago(text: str, seconds: float) -> None:
    assert moment(text, 1_000_000, "--since") == seconds
