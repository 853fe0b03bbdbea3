"""The expectations of the scenario can fail."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.matching import Names, differences, filled


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        (["<number>", "<text>", "<any>"], [1.5, "", None]),
        ({"a": "$x", "b": ["$x"]}, {"a": 7, "b": [7]}),
        (1.0, 1),
        ("…end", "the end"),
        ("…end…", "the ending"),
    ],
)
def test_what_is_as_expected_has_no_differences(expected: Any, got: Any) -> None:
    assert list(differences(expected, got, {})) == []


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        ({"a": 1}, {"b": 1}, "has no 'a'"),
        ({"a": [1, 2]}, {"a": [1]}, "answer.a is [1], not [1, 2]"),
        ({"a": {}}, {"a": []}, "answer.a is [], not {}"),
        (["$x", "$x"], [1, 2], "answer[1] is 2, not $x = 1"),
        ("<number>", True, "is not a <number>: True"),
        ("<text>", None, "is not a <text>: None"),
        ("…end", "ending", "does not end in 'end': 'ending'"),
        ("…end…", "the edge", "does not have 'end': 'the edge'"),
        ("…end", None, "is None, not '…end'"),
        (True, 1, "is 1, not True"),
        (None, {}, "is {}, not None"),
    ],
)
def test_a_difference_is_described_with_its_path(expected: Any, got: Any, said: str) -> None:
    (difference,) = differences(expected, got, {})
    assert said in difference


def test_a_name_is_filled_in_with_what_it_was_bound_to() -> None:
    names: Names = {"$lease": 5}
    assert filled({"lease": "$lease", "body": ["$lease", {"repeat": "ab", "times": 2}]}, names) == {
        "lease": 5,
        "body": [5, "abab"],
    }
