"""jobqueue/wires/parameters.py: names of other systems as names of ours, and back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.schema.fields import NAME_CHARACTERS
from jobqueue.wires import parameters

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
INSIDE = re.compile(rf"(?:[{re.escape(NAME_CHARACTERS)}]|%[0-9A-F]{{2}})*")


def test_each_byte_that_a_name_may_not_have_is_escaped(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("orders.eu-1_x:/@#+=", "orders.eu-1_x:/@#+="),
        ("a b", "a%20b"),
        ("100%", "100%25"),
        ("%2F", "%252F"),
        ("订单", "%E8%AE%A2%E5%8D%95"),
        ("é😀", "%C3%A9%F0%9F%98%80"),
        ("~\0\n*?", "%7E%00%0A%2A%3F"),
        ("", ""),
    ]
    for text, name in cases:
        with subtests.test(text=text, name=name):
            assert parameters.escaped(text) == name and parameters.plain(name) == text


@given(TEXTS)
def test_any_text_comes_back(text: str) -> None:
    name = parameters.escaped(text)
    assert parameters.plain(name) == text and INSIDE.fullmatch(name)


@given(TEXTS, TEXTS)
def test_two_texts_never_have_one_name(one: str, other: str) -> None:
    assert (parameters.escaped(one) == parameters.escaped(other)) == (one == other)


def test_a_name_that_no_text_was_made_into_is_shown_as_well_as_it_can_be() -> None:
    assert parameters.plain("a%FFb") == "a\ufffdb" and parameters.plain("%") == "%"


def test_a_lone_surrogate_has_no_name() -> None:
    with pytest.raises(UnicodeEncodeError):
        parameters.escaped("\ud800")


@pytest.mark.parametrize(("length", "fits"), [(0, False), (1, True), (255, True), (256, False)])
def test_a_name_has_1_to_255_characters(length: int, fits: bool) -> None:
    assert parameters.fits("x" * length) is fits


def test_a_topic_before_a_colon_has_none_of_its_own() -> None:
    assert parameters.without_colons("im:orders") == "im%3Aorders" and parameters.without_colons("orders") == "orders"


@given(TEXTS.map(parameters.escaped))
def test_an_id_goes_through_systems_of_letters_digits_and_hyphens(name: str) -> None:
    shown = parameters.tilde(name)
    assert parameters.without_tilde(shown) == name and re.fullmatch(r"[A-Za-z0-9._~-]*", shown)


def test_a_tilde_stands_for_seven_characters() -> None:
    assert parameters.tilde("/#+@=:%") == "~2F~23~2B~40~3D~3A~25" and parameters.tilde("a-b_c.d") == "a-b_c.d"
