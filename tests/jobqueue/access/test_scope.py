"""jobqueue.access.issuing: nobody gives more than they have, and a test says what a token may do."""

from __future__ import annotations

import itertools

import pytest

from buckets.topics.within import reaches
from jobqueue.access.issuing import beyond, beyond_reach, covers, refusal
from jobqueue.access.tokens import Record
from jobqueue.errors import BadField
from tests.jobqueue.access.records import record


def test_an_admin_gives_everything_and_others_what_they_have() -> None:
    everything = record("admin")
    narrow = record("token", "produce", "look")
    assert beyond(everything, record("admin")) is None
    assert beyond(everything, record("produce", "actor", topics=("a",), rate=5)) is None
    assert beyond(narrow, record("produce", "add", "peek")) is None
    for right in ("admin", "consume", "pop", "bodies", "actor", "metrics"):
        fault = beyond(narrow, record("produce", right))
        assert fault and fault.right == right


def test_topics_are_given_within_one_s_own() -> None:
    giver = record("admin", id="giver000", topics=("order-*", "mail"))
    assert beyond(giver, record("look", topics=("order-1", "order-a*", "mail", "order-??"))) is None
    for topics in ((), ("order*",), ("mail*",), ("*",), ("mail", "log")):
        fault = beyond(giver, record("look", topics=topics))
        assert fault and fault.topic


@pytest.mark.parametrize("limit", ["expires", "rate", "burst", "bytes", "waits"])
def test_limits_are_given_within_one_s_own(limit: str) -> None:
    giver = record("admin", **{limit: 100})
    assert beyond(giver, record("look", **{limit: 100})) is None
    assert beyond(giver, record("look", **{limit: 101}))
    assert beyond(giver, record("look"))
    assert beyond(record("admin"), record("look", **{limit: 101})) is None
    assert beyond_reach(giver, record("look")) is None


def test_who_may_add_own_ids_only_gives_no_more() -> None:
    assert beyond(record("admin", own_ids=True), record("look"))
    assert beyond(record("admin", own_ids=True), record("look", own_ids=True)) is None


def test_a_pattern_covers_no_other_that_matches_more() -> None:
    patterns = ["".join(each) for size in range(1, 4) for each in itertools.product("ab*?", repeat=size)]
    topics = ["".join(each) for size in range(6) for each in itertools.product("abc", repeat=size)]
    matched = {pattern: frozenset(topic for topic in topics if reaches(pattern, topic)) for pattern in patterns}
    for one, other in itertools.product(patterns, repeat=2):
        if covers(one, other):
            assert matched[one] >= matched[other], (one, other)
        elif matched[one] >= matched[other]:  # refused in doubt
            assert "?" in one and "*" in other, (one, other)


def test_a_test_says_why_not() -> None:
    token = record("produce", topics=("order-*",))

    def why(right: str, topic: str | None, token: Record = token, *, is_live: bool = True) -> str:
        return refusal(token, right, topic, is_live=is_live)

    assert why("add", "order-1") == why("produce", None) == ""
    assert why("pop", "order-1") == "the token lacks the right consume"
    assert why("add", "mail") == "the token does not reach the topic mail"
    assert why("add", "order-1", is_live=False) == "the token has expired"
    assert why("add", None, record("admin", revoked=1.0), is_live=False) == "the token is revoked"
    with pytest.raises(BadField):
        why("fly", None)
