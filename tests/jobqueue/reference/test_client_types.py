"""The clients' types of answers: they are up to date, and each answer has a type."""

from __future__ import annotations

import pytest

from jobqueue.reference import client_types, entries

WITHOUT_A_TYPE = {"Popped", "NothingPopped", "PoppedJobs"}
"""Answers to a pop, which the Python client returns as jobs."""


@pytest.mark.parametrize("file", client_types.FILES)
def test_a_file_is_what_the_generator_makes(file: str) -> None:
    path, make = client_types.FILES[file]
    assert path.read_text() == make(), "run `make docs`"


@pytest.mark.parametrize(("names", "without"), [(client_types.PYTHON, WITHOUT_A_TYPE), (client_types.NODE, set())])
def test_each_answer_has_a_type(names: dict[str, str], without: set[str]) -> None:
    """The tables of names in jobqueue/reference/client_types.py."""
    named = {answer.strip("()") for answers in names.values() for answer in answers.split()}
    assert {answer.__name__ for entry in entries() for answer in entry.answers} - without - named == set()


def test_a_field_is_optional_unless_all_answers_require_it() -> None:
    text = client_types.python()
    settled = text.partition("class Settled(TypedDict):")[2].partition("\n\n\n")[0]
    assert '"""The answer to finish, delete or bury."""' in settled
    assert '    state: Literal["dead", "finished", "deleted"]\n' in settled
    assert "    was: NotRequired[" in settled
    added = text.partition("class Added(TypedDict):")[2].partition("\n\n\n")[0]
    assert "    id: str\n" in added and "    jobs: NotRequired[list[AddedJob]]" in added
