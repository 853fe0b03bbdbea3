"""What happens a second, from the totals of two looks."""

from __future__ import annotations

from jobqueue.cli.watch import Pace


def test_the_pace_is_the_difference_of_two_looks_a_second() -> None:
    pace = Pace()
    assert pace.rates({"created": 10}, 100.0) == {}
    assert pace.rates({"created": 30, "finished": 4}, 102.0) == {"created": 10.0, "delivered": 0.0, "finished": 2.0}
    assert pace.rates({"created": 30, "finished": 4}, 102.0) == {}
