"""buckets.timers.assignment: timers are assigned evenly, and few change when an instance comes or goes."""

from __future__ import annotations

import pytest

from buckets.timers.assignment import assign

TOKENS = [b"%016x" % (number * 0x9E3779B97F4A7C15 % (1 << 64)) for number in range(1, 11)]


@pytest.mark.parametrize("timers", [1, 8, 32, 33])
@pytest.mark.parametrize("instances", range(1, 11))
def test_no_instance_has_two_timers_more_than_another(timers: int, instances: int) -> None:
    tokens = TOKENS[:instances]
    owners = assign(timers, tokens)
    loads = [owners.count(token) for token in tokens]
    assert sum(loads) == timers and max(loads) - min(loads) <= 1


def test_the_order_in_which_the_list_names_them_does_not_matter() -> None:
    assert assign(32, TOKENS) == assign(32, TOKENS[::-1])


@pytest.mark.parametrize("instances", range(2, 11))
def test_few_timers_change_between_others_when_one_goes(instances: int) -> None:
    tokens = TOKENS[:instances]
    before = assign(32, tokens)
    for gone in tokens:
        after = assign(32, [token for token in tokens if token != gone])
        changed = sum(old not in (gone, new) for old, new in zip(before, after, strict=True))
        assert changed <= 7  # assigned round robin, 24 of 32 would change
