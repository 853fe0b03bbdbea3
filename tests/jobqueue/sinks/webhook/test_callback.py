"""What a job's body must be to be a callback."""

from __future__ import annotations

from typing import Any

import pytest

from jobqueue.sinks.webhook.callback import BadCallback, read


def test_a_body_with_a_url_alone_is_an_empty_post() -> None:
    callback = read({"url": "https://shop.example/paid?order=1#top"})
    assert (callback.method, str(callback.url)) == ("POST", "https://shop.example/paid?order=1")
    assert (callback.headers, callback.body) == ({}, None)
    assert read({"url": "http://a/", "method": None, "headers": None}).method == "POST"


@pytest.mark.parametrize(
    ("payload", "body"),
    [
        (None, b"null"),
        ({"ä": [1, 2.5, "x/y"]}, '{"ä":[1,2.5,"x/y"]}'.encode()),
        (123456789012345678901234567890, b"123456789012345678901234567890"),
    ],
)
def test_any_json_is_a_payload(payload: Any, body: bytes) -> None:
    assert read({"url": "http://a/", "payload": payload}).body == body


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "the body must be an object with a url"),
        (["http://a/"], "the body must be an object with a url"),
        ("http://a/", "the body must be an object with a url"),
        ({}, "url is missing"),
        ({"url": 1}, "url must be a string"),
        ({"url": "http://a/", "pyload": 1}, "unknown field 'pyload'; did you mean payload?"),
        ({"url": "http://a/", "$.other": 1}, "unknown field '$.other'"),
        ({"url": "http://a/", "two\nlines": 1}, "unknown field 'two\\nlines'"),
        ({"url": "http://a/", "method": "post"}, "method must be one of GET, HEAD, POST, PUT, PATCH, DELETE"),
        ({"url": "http://a/", "method": "CONNECT"}, "method must be one of GET, HEAD, POST, PUT, PATCH, DELETE"),
        ({"url": "http://a/", "headers": {"a": 1}}, "headers must be an object of strings"),
        ({"url": "http://a/", "headers": ["a"]}, "headers must be an object of strings"),
        ({"url": "http://a/", "method": "GET", "payload": 1}, "payload: a GET must not have one"),
        ({"url": "http://a/", "payload": float("inf")}, "payload cannot be written as JSON"),
        ({"url": "http://a/", "payload": "\ud800"}, "payload cannot be written as JSON"),
    ],
)
def test_what_is_wrong_is_told_by_the_name_of_its_field(body: Any, words: str) -> None:
    with pytest.raises(BadCallback) as told:
        read(body)
    assert str(told.value) == words


@pytest.mark.parametrize(
    "url",
    [
        *("", "/path", "a.example/path", "//a.example/", "http:a.example", "http:///path", "http://", "mailto:a@b"),
        *("ftp://a/", "file:///etc/passwd", "unix:///run/x.sock", "ws://a/", "gopher://a/", "javascript:1"),
        *("http://a b/", "http://a/ b", "http://a/\r\nHost: b", "http://a/\x00", "http://a\\@b/", "http://a\u2028b/"),
        *("http://a:0/", "http://a:70000/", "http://a:x/", "http://[::1/", "http://\ud800/"),
        *("http://a%0d%0ab/", "http://a%00b/", "http://[fe80::1%25x]/", "http://[fe80::1%x]/", "http://a<b/"),
    ],
)
def test_only_plain_http_urls_are_called(url: str) -> None:
    with pytest.raises(BadCallback, match="url must be an http or https URL"):
        read({"url": url})


@pytest.mark.parametrize("url", ["http://user@a/", "http://user:hunter2@a/", "http://:hunter2@a/", "http://a%40b@c/"])
def test_no_user_stands_in_a_url_and_the_refusal_does_not_show_it(url: str) -> None:
    with pytest.raises(BadCallback) as told:
        read({"url": url})
    assert str(told.value) == "url must not hold a user or a password"


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "content-length", "Transfer-Encoding", "CONNECTION", "Webhook-Id", "webhook-anything", "Expect"),
        *("jobqueue-topic", "Proxy-Authorization", "Upgrade", "TE"),
    ],
)
def test_a_job_sets_no_header_that_is_the_connections_or_ours(name: str) -> None:
    with pytest.raises(BadCallback, match="may not be set by a job"):
        read({"url": "http://a/", "headers": {name: "x"}})


@pytest.mark.parametrize(
    "headers",
    [{"a": "b\r\nHost: c"}, {"a": "b\nc"}, {"a": "\x00"}, {"a\r\nb": "c"}, {"a:": "b"}, {"": "b"}, {"a": "ä"}],
)
def test_headers_are_printable(headers: dict[str, str]) -> None:
    with pytest.raises(BadCallback, match="name and value must be printable ASCII"):
        read({"url": "http://a/", "headers": headers})


def test_a_header_is_there_once() -> None:
    with pytest.raises(BadCallback, match="'x-a' appears twice"):
        read({"url": "http://a/", "headers": {"X-A": "1", "x-a": "2"}})
