"""jobqueue/wires/parameters.py: the parameters of a query and of a form."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue.errors import BadField
from jobqueue.wires.parameters import Parameters, is_form

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def test_a_name_and_its_value_are_percent_encoded_utf_8() -> None:
    parameters = Parameters(b"msg=%7B%22x%22%3A%22%C3%A9+%26%22%7D&%E8%AE%A2=%E5%8D%95+a%2Bb")
    assert parameters.text("msg") == '{"x":"é &"}'
    assert parameters.text("订") == "单 a+b"


@given(st.dictionaries(TEXTS, TEXTS))
def test_whatever_a_form_encodes_is_read_back(pairs: dict[str, str]) -> None:
    parameters = Parameters(urlencode(pairs).encode())
    assert {name: parameters.text(name) for name in pairs} == pairs


def test_the_first_of_a_name_counts_and_a_query_stands_before_its_form() -> None:
    parameters = Parameters("a=1&a=2&b=", b"a=3&b=4&c=5")
    assert [parameters.text(name) for name in "abcd"] == ["1", "", "5", None]


def test_a_name_without_a_value_is_empty() -> None:
    assert Parameters("a&b=&=c").text("a") == "" and Parameters("").text("a") is None


def test_what_is_not_utf_8_is_refused_where_it_is_asked_for_and_ignored_elsewhere() -> None:
    parameters = Parameters(b"bad=%ff%fe&good=x&half=%e5%8d")
    assert parameters.text("good") == "x"
    for name in ("bad", "half"):
        with pytest.raises(BadField, match=f"{name} is not UTF-8"):
            parameters.text(name)


def test_a_percent_sign_that_escapes_nothing_stays() -> None:
    assert Parameters(b"a=100%&b=%zz&c=%4").text("a") == "100%"


def test_an_integer_has_digits_a_sign_and_blanks_around_it(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, int | None]] = [
        ("0", 0),
        ("-1", -1),
        ("%2B7", 7),
        ("+7+", 7),  # blanks around it
        ("%09-12%0d%0a", -12),
        ("0" * 500 + "5", 5),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        ("", None),
        ("+++", None),
    ]
    for raw, number in cases:
        with subtests.test(raw=raw, number=number):
            assert Parameters(f"n={raw}").integer("n") == number


def test_any_other_integer_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        "x",
        "1.5",
        "1e3",
        "0x10",
        "1_000",
        "1+000",
        "--1",
        "%D9%A1",
        str(2**63),
        "9" * 5000,
        "-",
        "%ff",
        "1%00",
    ]
    for raw in cases:
        with subtests.test(raw=raw), pytest.raises(BadField):
            Parameters(f"n={raw}").integer("n")


def test_an_integer_has_a_range() -> None:
    assert Parameters("n=2147483647").integer("n", -(2**31), 2**31 - 1) == 2**31 - 1
    with pytest.raises(BadField, match="n must be an integer from 0 to 5"):
        Parameters("n=6").integer("n", 0, 5)


def test_a_truth_has_eight_spellings_in_any_case() -> None:
    for words, truth in (("true on yes 1 TRUE Yes", True), ("false off no 0 False OFF", False)):
        for word in words.split():
            assert Parameters(f"t=+{word}+").truth("t") is truth
    assert Parameters("t=").truth("t") is None and Parameters("").truth("t") is None
    for word in ("2", "y", "wahr", "truefalse"):
        with pytest.raises(BadField, match="t must be true or false"):
            Parameters(f"t={word}").truth("t")


def test_a_million_parameters_cost_no_more_than_a_thousand() -> None:
    parameters = Parameters(b"a=1&" + b"&" * 1_000_000 + b"b=2")
    assert parameters.text("a") == "1" and parameters.text("b") is None


@pytest.mark.parametrize(
    ("content_type", "is_one"),
    [
        ("application/x-www-form-urlencoded; charset=utf-8", True),
        ("Application/X-WWW-Form-Urlencoded", True),
        ("", True),
        ("application/json", False),
        ("multipart/form-data; boundary=x", False),
    ],
)
def test_a_body_is_a_form_by_its_type_or_without_one(content_type: str, is_one: bool) -> None:
    assert is_form(content_type) is is_one
