"""buckets.pool.ready_shards: which shards a pop asks, and what makes it forget one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from buckets.pool import ready_shards
from buckets.pool.ready_shards import ReadyShards

SHARDS = 4


class Seconds:
    """The clock of the sweep, which a test sets."""

    now = 100.0


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def known(seconds: Seconds) -> ReadyShards:
    """All shards are heard, and the topic `t` has been found empty in all of them."""
    known = ReadyShards(SHARDS, lambda: seconds.now)
    for shard in range(SHARDS):
        known.stands(shard)
    empty(known, "t")
    return known


def empty(known: ReadyShards, *topics: str) -> None:
    """A pop finds no jobs of these topics anywhere."""
    for shard, some in list(known.places(topics)):
        known.emptied(shard, some, known.asked(shard, some))


def shards(known: ReadyShards, *topics: str) -> list[int]:
    return [shard for shard, _ in known.places(topics or ("t",))]


def test_a_topic_that_is_new_is_looked_up_in_all_shards(known: ReadyShards) -> None:
    assert sorted(shards(known, "new")) == [0, 1, 2, 3]


def test_a_topic_that_was_found_empty_is_not_looked_up_again(known: ReadyShards) -> None:
    assert shards(known) == []
    assert not known.expected("t")


def test_a_shard_that_rings_is_asked(known: ReadyShards) -> None:
    known.heard(2, "t")
    assert shards(known) == [2]
    assert known.expected("t")


def test_an_answer_that_left_before_the_ring_does_not_take_its_mark(known: ReadyShards) -> None:
    stamp = known.asked(2, ["t"])
    known.heard(2, "t")
    known.emptied(2, ["t"], stamp)
    assert shards(known) == [2]
    known.emptied(2, ["t"], known.asked(2, ["t"]))
    assert shards(known) == []


def test_an_answer_that_left_before_a_second_ring_does_not_take_the_mark_of_the_first(known: ReadyShards) -> None:
    known.heard(2, "t")
    stamp = known.asked(2, ["t"])
    known.heard(2, "t")
    known.emptied(2, ["t"], stamp)
    assert shards(known) == [2]


@pytest.mark.parametrize("way", [ReadyShards.stir, ReadyShards.lost, ReadyShards.stands])
@pytest.mark.parametrize("is_marked", [True, False])
def test_an_answer_that_left_before_something_came_to_the_shard_does_not_take_its_doubt(
    known: ReadyShards, way: object, is_marked: bool
) -> None:
    if is_marked:
        known.heard(2, "t")
    stamp = known.asked(2, ["t"])
    assert callable(way)
    way(known, 2)
    known.emptied(2, ["t"], stamp)
    assert shards(known) == [2]


def test_what_came_to_a_shard_concerns_all_topics_and_no_other_shard(known: ReadyShards) -> None:
    empty(known, "u")
    known.stir(1)
    assert list(known.places(["t", "u"])) == [(1, ["t", "u"])]
    empty(known, "t")
    assert list(known.places(["t", "u"])) == [(1, ["u"])]


def test_a_shard_that_is_not_heard_is_asked_each_time(known: ReadyShards) -> None:
    known.lost(3)
    for _ in range(3):
        assert shards(known) == [3]
        empty(known, "t")
    assert known.expected("t")
    known.stands(3)
    assert shards(known) == [3]
    empty(known, "t")
    assert shards(known) == []


def test_all_shards_are_looked_up_once_a_second(known: ReadyShards, seconds: Seconds) -> None:
    seconds.now += 0.99
    assert shards(known) == []
    seconds.now += 0.02
    assert sorted(shards(known)) == [0, 1, 2, 3]
    empty(known, "t")
    seconds.now += 0.99
    assert shards(known) == []


def test_the_shard_that_rang_is_asked_before_those_of_the_sweep(known: ReadyShards, seconds: Seconds) -> None:
    seconds.now += 2
    assert len(shards(known)) == 4
    known.heard(1, "t")
    assert shards(known)[0] == 1
    assert sorted(shards(known)) == [0, 1, 2, 3]


def test_a_shard_whose_ring_was_lost_has_its_turn_beside_one_that_always_has_jobs(
    known: ReadyShards, seconds: Seconds
) -> None:
    known.heard(1, "t")
    asked = set()
    for _ in range(40):
        seconds.now += 0.1
        shard = shards(known)[0]
        stamp = known.asked(shard, ["t"])
        known.left(shard, "t", 7 if shard == 1 else 0, stamp)
        asked.add(shard)
    assert asked == {0, 1, 2, 3}


def test_shards_that_have_jobs_take_turns(known: ReadyShards) -> None:
    for shard in (0, 1, 3):
        known.heard(shard, "t")
    asked = []
    for _ in range(6):
        shard = shards(known)[0]
        known.left(shard, "t", 7, known.asked(shard, ["t"]))
        asked.append(shard)
    assert asked == [0, 1, 3, 0, 1, 3]


def test_a_shard_that_was_doubted_and_has_jobs_is_marked(known: ReadyShards) -> None:
    known.stir(2)
    assert shards(known) == [2]
    assert not known.expected("t")
    known.left(2, "t", 1, known.asked(2, ["t"]))
    assert known.expected("t")


def test_topics_are_tried_in_their_order(known: ReadyShards) -> None:
    empty(known, "u")
    for shard, topic in ((0, "u"), (1, "t"), (2, "u"), (3, "t")):
        known.heard(shard, topic)
    assert list(known.places(["u", "t"])) == [(0, ("u",)), (2, ("u",)), (1, ("t",)), (3, ("t",))]


def test_topics_of_which_nothing_is_known_are_asked_for_together(known: ReadyShards) -> None:
    known.heard(1, "t")
    places = list(known.places(["new", "newer", "t", "newest"]))
    assert {shard: tuple(topics) for shard, topics in places[:4]} == dict.fromkeys(range(4), ("new", "newer"))
    assert places[4] == (1, ("t",))
    assert [topics for _, topics in places[5:]] == [["newest"]] * 4


def test_of_too_many_topics_that_one_goes_which_was_not_asked_for_the_longest(
    known: ReadyShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_shards, "MOST_TOPICS", 3)
    empty(known, "u")
    empty(known, "v")
    assert shards(known, "t") == []
    known.heard(0, "u")  # no pop asked for it
    empty(known, "w")
    assert [topic for topic in ("t", "v", "w") if shards(known, topic)] == []
    assert len(shards(known, "u")) == 4


def test_what_is_said_of_a_topic_that_nobody_asked_for_is_not_kept() -> None:
    known = ReadyShards(SHARDS)
    known.stands(0)
    for n in range(1000):
        known.heard(0, f"t{n}")
    assert not known._topics


@pytest.mark.parametrize("topics", [["t"], ["t", "u"]])
def test_processes_begin_with_different_shards(topics: Sequence[str]) -> None:
    assert len({shards(ReadyShards(SHARDS), *topics)[0] for _ in range(200)}) == SHARDS
