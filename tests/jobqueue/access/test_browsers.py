"""Which requests come from a web page that may not make them."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from jobqueue.access.browsers import Browsers
from jobqueue.errors import Forbidden, Misdirected

ORIGIN = "https://console.example"
BROWSERS = Browsers([ORIGIN], ["queue.example"])


def judged(*fields: tuple[str, str], method: str = "POST", on_loopback: bool = True) -> str:
    return BROWSERS.judge(method, CIMultiDict(fields), on_loopback=on_loopback)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [("Host", "anything.example")],
        [("Sec-Fetch-Mode", "cors")],
        [("Sec-Fetch-Site", "none")],
        [("Sec-Fetch-Site", "same-origin")],
        [("Upgrade", "h2c"), ("Connection", "Upgrade")],
    ],
    ids=str,
)
def test_a_request_that_no_page_of_another_origin_makes_is_taken(fields: list[tuple[str, str]]) -> None:
    assert judged(*fields) == ""


@pytest.mark.parametrize(
    "fields",
    [
        [("Origin", "https://evil.example")],
        [("origin", "http://localhost:8000")],
        [("Origin", "null")],
        [("Origin", "")],
        [("Origin", "https://console.example.evil.example")],
        [("Origin", "http://console.example")],
        [("Origin", "https://console.example:8443")],
        [("Origin", "https://CONSOLE.example")],
        [("Origin", f"{ORIGIN}/")],
        [("Origin", f"{ORIGIN}, {ORIGIN}")],
        [("Origin", ORIGIN), ("Origin", ORIGIN)],
        [("Origin", ORIGIN), ("Origin", "https://evil.example")],
        [("Origin", ORIGIN), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", "none")],
        [("Origin", ORIGIN), ("Sec-WebSocket-Key", "x")],
        [("Origin", ORIGIN), ("Upgrade", "h2c"), ("Upgrade", "WebSocket")],
        [("Sec-Fetch-Site", "cross-site")],
        [("Sec-Fetch-Site", "same-site")],
        [("Sec-Fetch-Site", "Cross-Site")],
        [("Sec-Fetch-Site", "")],
        [("Sec-Fetch-Site", "none"), ("Sec-Fetch-Site", "none")],
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
def test_a_request_of_a_page_is_refused(fields: list[tuple[str, str]], method: str) -> None:
    with pytest.raises(Forbidden):
        judged(*fields, method=method)


def test_the_page_of_an_allowed_origin_is_known_by_it() -> None:
    assert judged(("Origin", ORIGIN)) == judged(("Origin", ORIGIN), ("Sec-Fetch-Site", "cross-site")) == ORIGIN


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:8000", "localhost.", "queue.localhost:1", "127.0.0.1:8000", "10.1.2.3", "[::1]:8000"),
        *("[::1]", "queue.example", "Queue.Example.:443"),
    ],
)
def test_a_get_by_a_name_of_the_service_is_taken(host: str) -> None:
    assert judged(("Host", host), method="GET") == ""


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "notlocalhost",
        "127.0.0.1.evil.example",
        "",
        ":80",
        "[x]",
        "127.1",
        "[::1].evil",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_get_by_another_name_is_misdirected(host: str, method: str) -> None:
    with pytest.raises(Misdirected):
        judged(("Host", host), method=method)


def test_a_get_with_two_names_is_misdirected_and_one_without_is_taken() -> None:
    with pytest.raises(Misdirected):
        judged(("Host", "localhost"), ("Host", "localhost"), method="GET")
    assert judged(method="GET") == ""


def test_names_are_asked_on_loopback_and_where_names_are_set() -> None:
    evil = CIMultiDict(Host="evil.example")
    assert Browsers().judge("GET", evil, on_loopback=False) == ""
    with pytest.raises(Misdirected):
        Browsers(hosts=["queue.example"]).judge("GET", evil, on_loopback=False)
