"""jobqueue.access.grants: who acts, as a request names them."""

from __future__ import annotations

import pytest

from jobqueue.access.grants import HEADER, NO_NAME, OPEN, Grant, actor_of, named
from jobqueue.errors import BadField, Forbidden
from tests.jobqueue.access.records import record

_NAME = "console"


def grant(*rights: str) -> Grant:
    return Grant(record(*rights, name=_NAME), "owner")


def test_the_actor_is_the_token_and_behind_a_slash_the_person() -> None:
    console = grant("operate", "actor")
    assert actor_of(console, named((), console)) == _NAME
    assert actor_of(console, named(["Zoë"], console)) == f"{_NAME}/Zoë"


def test_without_tokens_the_actor_is_whoever_is_named_or_nobody() -> None:
    assert actor_of(OPEN, named(["Zoë"], OPEN)) == "Zoë"
    assert actor_of(OPEN, named((), OPEN)) == NO_NAME


@pytest.mark.parametrize("rights", [("produce",), ("operate", "consume", "look", "bodies", "metrics")])
def test_only_an_admin_and_the_right_actor_name_a_person(rights: tuple[str, ...]) -> None:
    with pytest.raises(Forbidden) as refused:
        named(["zoe"], grant(*rights))
    assert refused.value.right == "actor"
    assert named((), grant(*rights)) == ""
    assert named(["zoe"], grant("admin")) == named(["zoe"], grant("actor")) == "zoe"


@pytest.mark.parametrize("name", ["", "a\nb", "a\x1b[2J", "\u202eeoz", "\udcff"])
def test_a_name_that_cannot_be_shown_is_refused_with_its_field(name: str) -> None:
    with pytest.raises(BadField) as refused:
        named([name], OPEN)
    assert refused.value.field == HEADER


def test_the_actor_has_at_most_200_bytes() -> None:
    for whose, room in ((OPEN, 200), (grant("admin"), 200 - len(_NAME) - 1)):
        assert named(["x" * room], whose)
        assert named(["ü" * (room // 2)], whose)
        for name in ("x" * (room + 1), "ü" * (room // 2 + 1)):
            with pytest.raises(BadField):
                named([name], whose)


def test_two_names_are_none() -> None:
    with pytest.raises(BadField):
        named(["ann", "bob"], OPEN)
