"""buckets.timers.members: timers are assigned evenly, and few change when an instance comes or goes."""

from __future__ import annotations

import itertools

import pytest

from buckets.timers.members import assign

TOKENS = [b"%016x" % (number * 0x9E3779B97F4A7C15 % (1 << 64)) for number in range(1, 11)]


def test_no_instance_has_two_timers_more_than_another(subtests: pytest.Subtests) -> None:
    for timers, instances in itertools.product((1, 8, 32, 33), range(1, 11)):
        with subtests.test(timers=timers, instances=instances):
            tokens = TOKENS[:instances]
            owners = assign(timers, tokens)
            loads = [owners.count(token) for token in tokens]
            assert sum(loads) == timers and max(loads) - min(loads) <= 1


def test_the_order_in_which_the_list_names_them_does_not_matter() -> None:
    assert assign(32, TOKENS) == assign(32, TOKENS[::-1])


def test_few_timers_change_between_others_when_one_goes(subtests: pytest.Subtests) -> None:
    for instances in range(2, 11):
        with subtests.test(instances=instances):
            tokens = TOKENS[:instances]
            before = assign(32, tokens)
            for gone in tokens:
                after = assign(32, [token for token in tokens if token != gone])
                changed = sum(old not in (gone, new) for old, new in zip(before, after, strict=True))
                assert changed <= 7  # assigned round robin, 24 of 32 would change
