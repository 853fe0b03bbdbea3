"""buckets.redis.url: URLs of a Redis, and the errors of invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from buckets.redis.url import Address, Kind, read_url
from tests.kit.redis_node import Tls


@pytest.mark.parametrize(
    ("text", "kind", "addresses", "master"),
    [
        ("redis://localhost:1234/2", "standalone", [], ""),
        ("unix:///run/redis.sock", "standalone", [], ""),
        ("redis+sentinel://a,b:1,[::1]:2/main", "sentinel", [("a", 26379), ("b", 1), ("::1", 2)], "main"),
        ("redis+sentinel://u:p%40@a/m%20n?db=3", "sentinel", [("a", 26379)], "m n"),
        ("redis+cluster://a,b:7000", "cluster", [("a", 6379), ("b", 7000)], ""),
        ("rediss+cluster://u:p@a/?ssl_check_hostname=no", "cluster", [("a", 6379)], ""),
    ],
)
def test_a_url_tells_the_kind_the_addresses_and_the_master(
    text: str, kind: Kind, addresses: list[tuple[str, int]], master: str
) -> None:
    url = read_url(text, 1.0)
    assert (url.kind, list(url.addresses), url.master) == (kind, addresses, master)


def test_user_password_and_database_go_to_the_servers_and_not_to_the_sentinels() -> None:
    url = read_url("redis+sentinel://u:p%40@a/m?db=3&sentinel_password=s", 1.0)
    server, sentinel = url.connection(Address("x", 9)), url.sentinel_connection(Address("a", 1))
    assert (server.host, server.port, server.username, server.password, server.db) == ("x", 9, "u", "p@", 3)
    assert (sentinel.username, sentinel.password, sentinel.db) == (None, "s", 0)


def test_tls_is_for_servers_and_sentinels_alike(tmp_path: Path) -> None:
    url = read_url(f"rediss+sentinel://a/m{Tls(tmp_path / 'tls').in_url}", 1.0)
    server, sentinel = url.connection(Address("x", 9)), url.sentinel_connection(Address("a", 1))
    assert server.ssl_context.get() is sentinel.ssl_context.get()
    assert server.ssl_context.get().get_ca_certs()


def test_what_is_wrong_with_a_url_is_told(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("http://a", "schemes"),
        ("redis+other://a", "it must begin with"),
        ("redis+sentinel://a,b", "ends with the name of its master"),
        ("redis+cluster://a/name", "ends with its last host"),
        ("redis+cluster://a:99999", "each of its hosts"),
        ("redis+cluster://a,,b", "each of its hosts"),
        ("redis+cluster://a?db=1", "has only database 0"),
        ("redis+cluster://a?nonsense=1", "nonsense"),
        ("redis+cluster://", "each of its hosts"),
    ]
    for text, words in cases:
        with subtests.test(text=text, words=words), pytest.raises((ValueError, TypeError), match=words):
            read_url(text, 1.0)


def test_an_address_is_written_as_in_a_url() -> None:
    assert [str(Address("::1", 6379)), str(Address("a", 1))] == ["[::1]:6379", "a:1"]
