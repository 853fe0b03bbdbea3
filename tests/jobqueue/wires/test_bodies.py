"""jobqueue/wires/parameters.py: texts and bytes as JSON bodies, and back, byte for byte."""

from __future__ import annotations

import base64
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets import Job, NewJob
from buckets.record import pack_front, unpack
from jobqueue.errors import TooLarge
from jobqueue.wires import parameters

MOST = 1 << 18
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inside: st.lists(inside) | st.dictionaries(TEXTS, inside),
)


def job(body: bytes, headers: dict[str, str] | None = None) -> Job:
    """A job with this body, as the pool reads one."""
    new = NewJob("a", "t", body, headers=orjson.dumps(headers) if headers else b"")
    return unpack("a", pack_front(new) + body)


def test_an_object_or_an_array_is_stored_as_it_is(subtests: pytest.Subtests) -> None:
    cases: list[str] = ["{}", "[]", '{"a": 1}', "[1,\n2]", '{"a":{"b":[]}}', '{"é":"订单"}', "[1e308]"]
    for text in cases:
        with subtests.test(text=text):
            assert parameters.stored_text(text, MOST) == text.encode()


def test_any_other_text_is_stored_as_a_json_string(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        *("", "x", "1", "null", "true", '"x"', " {}", "{} ", "{]", "[}", "{", "}", "{}{}", "[1,]", "{'a':1}", "[NaN]"),
        *(
            "[1e999]",
            "[" * 501 + "]" * 501,
            '["\\ud800"]',
            "\0",
            "\ufeff{}",
            "line\nline",
            "é订单😀",
            "{" + "x" * 9 + "}",
        ),
    ]
    for text in cases:
        with subtests.test(text=text):
            stored = parameters.stored_text(text, MOST)
            assert orjson.loads(stored) == text and stored.startswith(b'"')
            assert parameters.given_text(job(stored)) == text and parameters.given_bytes(job(stored)) == text.encode()


@given(TEXTS | JSON.map(json.dumps) | st.text('{}[]",1 '))
def test_any_text_comes_back(text: str) -> None:
    stored = job(parameters.stored_text(text, MOST))
    assert parameters.given_text(stored) == text and parameters.given_bytes(stored) == text.encode()


@given(st.binary() | TEXTS.map(str.encode))
def test_any_bytes_come_back(raw: bytes) -> None:
    body, headers = parameters.stored_bytes(raw, MOST)
    orjson.loads(body)
    assert parameters.given_bytes(job(body, headers)) == raw


def test_bytes_that_are_not_utf_8_are_stored_as_base64_with_a_header_and_shown_as_that_to_systems_of_texts() -> None:
    body, headers = parameters.stored_bytes(b"\xff\x00", MOST)
    assert (body, headers) == (b'"/wA="', {"content-encoding": "base64"})
    assert parameters.given_text(job(body, headers)) == "/wA="


def test_a_text_whose_json_would_be_too_long_is_stored_as_base64_where_that_fits() -> None:
    raw = b"\0" * 30  # six characters each in JSON
    body, headers = parameters.stored_bytes(raw, 64)
    assert len(body) == 42 and headers and parameters.given_bytes(job(body, headers)) == raw
    assert parameters.given_text(job(body, headers)) == raw.decode()


@pytest.mark.parametrize(("raw", "most"), [(b"x" * 63, 64), (b"\xff" * 47, 64), (b'{"a":"' + b"x" * 60 + b'"}', 64)])
def test_what_fits_in_no_form_is_too_large(raw: bytes, most: int) -> None:
    with pytest.raises(TooLarge):
        parameters.stored_bytes(raw, most)


def test_a_text_of_just_the_allowed_length_fits() -> None:
    assert len(parameters.stored_text("x" * 62, 64)) == 64
    with pytest.raises(TooLarge):
        parameters.stored_text("x" * 63, 64)


@pytest.mark.parametrize("body", [b"1", b"null", b"true", b"[1, 2]", b'{"a" : 1}', b"1.50"])
def test_a_native_body_that_is_no_string_is_given_as_it_travelled(body: bytes) -> None:
    assert parameters.given_bytes(job(body)) == body and parameters.given_text(job(body)) == body.decode()


@pytest.mark.parametrize("text", ["not base64", "AAA", "订单"])
def test_a_native_body_that_is_not_what_its_header_says_is_given_as_its_text(text: str) -> None:
    body = orjson.dumps(text)
    assert parameters.given_bytes(job(body, {"content-encoding": "base64"})) == text.encode()


def test_a_header_of_another_encoding_changes_nothing() -> None:
    encoded = base64.b64encode(b"hello")
    assert parameters.given_bytes(job(b'"' + encoded + b'"', {"content-encoding": "gzip"})) == encoded
