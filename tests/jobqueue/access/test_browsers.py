"""Which requests come from a web page that may not make them."""

from __future__ import annotations

import itertools

import pytest
from multidict import CIMultiDict

from jobqueue.access.browsers import Browsers
from jobqueue.errors import Forbidden, Misdirected

ORIGIN = "https://console.example"
BROWSERS = Browsers([ORIGIN], ["queue.example"])


def judged(*fields: tuple[str, str], method: str = "POST") -> str | type[Exception]:
    """The allowed origin of a request, "" without one, or the kind of its refusal."""
    try:
        return BROWSERS.judge(method, CIMultiDict(fields), on_loopback=True)
    except (Forbidden, Misdirected) as refusal:
        return type(refusal)


def test_a_request_that_no_page_of_another_origin_makes_is_taken() -> None:
    requests: list[list[tuple[str, str]]] = [
        [],
        [("Host", "anything.example")],
        [("Sec-Fetch-Mode", "cors")],
        [("Sec-Fetch-Site", "none")],
        [("Sec-Fetch-Site", "same-origin")],
        [("Upgrade", "h2c"), ("Connection", "Upgrade")],
    ]
    assert [fields for fields in requests if judged(*fields) != ""] == []


def test_a_request_of_a_page_is_refused() -> None:
    requests = [
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
    ]
    cases = itertools.product(("GET", "POST", "OPTIONS", "DELETE"), requests)
    assert [case for case in cases if judged(*case[1], method=case[0]) is not Forbidden] == []


def test_the_page_of_an_allowed_origin_is_known_by_it() -> None:
    assert judged(("Origin", ORIGIN)) == judged(("Origin", ORIGIN), ("Sec-Fetch-Site", "cross-site")) == ORIGIN


def test_a_get_by_a_name_of_the_service_is_taken() -> None:
    hosts = (
        *("localhost", "LOCALHOST:8000", "localhost.", "queue.localhost:1", "127.0.0.1:8000", "10.1.2.3", "[::1]:8000"),
        *("[::1]", "queue.example", "Queue.Example.:443"),
    )
    assert [host for host in hosts if judged(("Host", host), method="GET") != ""] == []


def test_a_get_by_another_name_is_misdirected() -> None:
    hosts = (
        "evil.example",
        "localhost.evil.example",
        "notlocalhost",
        "127.0.0.1.evil.example",
        "",
        ":80",
        "[x]",
        "127.1",
        "[::1].evil",
    )
    cases = itertools.product(("GET", "HEAD"), hosts)
    assert [case for case in cases if judged(("Host", case[1]), method=case[0]) is not Misdirected] == []


def test_a_get_with_two_names_is_misdirected_and_one_without_is_taken() -> None:
    assert judged(("Host", "localhost"), ("Host", "localhost"), method="GET") is Misdirected
    assert judged(method="GET") == ""


def test_names_are_asked_on_loopback_and_where_names_are_set() -> None:
    evil = CIMultiDict(Host="evil.example")
    assert Browsers().judge("GET", evil, on_loopback=False) == ""
    with pytest.raises(Misdirected):
        Browsers(hosts=["queue.example"]).judge("GET", evil, on_loopback=False)
