"""Cursors: places that go out as text and come back the same."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets import Position
from jobqueue.errors import BadField
from jobqueue.schema import checks

BYTES = st.text(st.characters(max_codepoint=255))


class Other(NamedTuple):
    """A place of another kind."""

    shard: int
    cursor: int


@given(
    st.builds(Position, st.integers(1, 4), st.integers(0, 9), st.integers(0, 255), BYTES, BYTES, st.integers(0, 2**53))
)
def test_a_place_comes_back_as_it_was(place: Position) -> None:
    cursor = checks.write(place)
    assert cursor is not None and checks.read(cursor, Position) == place
    assert set(cursor) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_the_place_of_the_longest_names_fits_a_cursor() -> None:
    """An entry of a ready list is a number of ten digits and an id."""
    longest = Position(2, 15, 9, "9" * 15, "4294967295:" + "x" * 255, 2**53)
    assert len(checks.write(longest) or "") <= 1000


def test_no_cursor_is_no_place_and_the_end_is_no_cursor() -> None:
    assert checks.read(None, Position) is None
    assert checks.write(None) is None


@given(st.text(max_size=60) | st.text("ABCDEFabcdef0123456789-_=", max_size=60))
def test_text_of_any_kind_is_refused(text: str) -> None:
    with pytest.raises(BadField) as refused:
        checks.read(text, Position)
    assert refused.value.field == "cursor"


def test_a_place_of_another_kind_is_refused() -> None:
    for place, kind in ((Other(1, 0), Position), (Position(1, 0), Other)):
        with pytest.raises(BadField):
            checks.read(checks.write(place), kind)
