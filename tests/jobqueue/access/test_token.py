"""jobqueue.access.tokens: a token is recognised by its form and checksum, kept as a digest, and shown nowhere."""

from __future__ import annotations

import hashlib
import logging
import re
import traceback

import pytest

from jobqueue.access.tokens import Token

ONE = "jqt_orders01Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9x3PwsY5"
PADDED = "jqt_00000002sssssssssssssssssssssssssssssssssssssssssss0YwW25"  # its checksum begins with the digit 0


def test_a_made_token_has_the_form_that_scanners_look_for() -> None:
    made = [Token.make() for _ in range(200)]
    assert all(re.fullmatch("jqt_[0-9A-Za-z]{57}", token.text) for token in made)
    assert all(Token.read(token.text) for token in made)
    assert len({token.text[12:55] for token in made}) == len({token.id for token in made}) == 200


def test_a_token_may_get_another_secret_under_its_id() -> None:
    first = Token.make()
    second = Token.make(first.id)
    assert (second.id, second.text != first.text) == (first.id, True)


@pytest.mark.parametrize("text", [ONE, PADDED])
def test_a_token_is_read(text: str) -> None:
    token = Token.read(text)
    assert token and (token.text, token.id) == (text, text[4:12])
    assert token.digest == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "wrong",
    ["", "jqt_", ONE[:-1], ONE + "x", ONE + "\n", " " + ONE, ONE.lower(), ONE.replace("jqt_", "jqs_"), "ü" * 61],
)
def test_what_has_another_form_is_no_token(wrong: str) -> None:
    assert Token.read(wrong) is None


def test_each_mistyped_character_is_noticed() -> None:
    for place in range(4, len(ONE)):
        typed = "a" if ONE[place] != "a" else "b"
        assert Token.read(ONE[:place] + typed + ONE[place + 1 :]) is None


def test_a_token_is_not_shown_by_accident(caplog: pytest.LogCaptureFixture) -> None:
    token = Token(ONE)
    logging.getLogger("x").warning("%s %r", token, {"token": token})
    try:
        raise ValueError(token)
    except ValueError:
        shown = traceback.format_exc()
    assert not [text for text in (str(token), repr([token]), caplog.text, shown) if ONE[12:55] in text]
    assert "orders01" in repr(token)
