"""The options of a client, validated before anything is sent, and the order in which its addresses are tried.

The list of addresses is shuffled once per client, so that load spreads. A request goes to the first address that is not
left out. An address that failed is left out for a while, longer with each failure in a row. If all are left out, the
one that comes back first is tried. Changes are single assignments, so that threads need no lock.
"""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from jobqueue_client.access import Access

_A_DAY_S = 86_400
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

Loads = Callable[[bytes], Any]
"""Decodes JSON. Raises ValueError or RecursionError for invalid JSON."""


def loads(data: bytes) -> Any:
    """Decode an answer; used unless a client has its own `loads`."""
    return json.loads(data, parse_int=_integer)


def _integer(text: str) -> float:
    try:
        return int(text)
    except ValueError:  # Python parses at most 4,300 digits; a longer number in one body must not hide other jobs
        return float(text)


def urls_of(url: str | None, urls: Sequence[str] | None) -> list[str]:
    """The URLs of the service, from the options `url` and `urls`, of which exactly one is given. Raises ValueError."""
    if (url is None) == (urls is None):
        raise ValueError("give either url, one address, or urls, a list of addresses")
    if urls is None:
        return [_checked("url", url)]
    if isinstance(urls, str) or not isinstance(urls, Sequence) or not urls:
        raise ValueError(f"urls must be a list of at least one URL, not {urls!r}")
    return list(dict.fromkeys(_checked("each of urls", each) for each in urls))


def _checked(name: str, url: object) -> str:
    if isinstance(url, list | tuple | set) or (isinstance(url, str) and "," in url):
        raise ValueError(f'{name} must be one URL, not {url!r}; for several, use urls=["http://one", "http://two"]')
    if not isinstance(url, str) or not _is_url(url):
        raise ValueError(f"{name} must be a service's URL such as http://localhost:8000, not {url!r}")
    return url


@dataclass(frozen=True)
class Options:
    """Where the service is, and how long to wait for it. Raises ValueError for an invalid option."""

    urls: Sequence[str]
    timeout_s: float
    connect_timeout_s: float
    retry_for_s: float
    headers: Mapping[str, str] = field(repr=False)  # they may include credentials
    access: Access
    loads: Loads = loads

    def __post_init__(self) -> None:
        check_seconds("timeout_s", self.timeout_s, 0.001, _A_DAY_S)
        check_seconds("connect_timeout_s", self.connect_timeout_s, 0.001, _A_DAY_S)
        check_seconds("retry_for_s", self.retry_for_s, 0)
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _is_printable(value):
                raise ValueError(f"headers must have names and values of printable ASCII: {name!r} does not")

    def headers_with(self, authorization: str | None) -> dict[str, str]:
        """All headers of a request."""
        own = {"Content-Type": "application/json", **self.headers}
        return own if authorization is None else {**own, "Authorization": authorization}


def check_seconds(name: str, value: float, least: float, most: float = math.inf) -> None:
    """Raise ValueError unless `value` is a number of seconds between the bounds, inclusive."""
    if not isinstance(value, int | float) or not least <= value <= most:  # NaN fails, too
        bounds = f"from {least:g} to {most:g}" if most < math.inf else f"of at least {least:g}"
        raise ValueError(f"{name} must be a number of seconds {bounds}, not {value!r}")


def _is_printable(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable()


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, AttributeError):  # an invalid port, half an IPv6 address; not a string
        return False
    return bool(known) and _is_printable(url) and not set(url) & set(" ?#@")


_LEFT_OUT_S = 5.0
_LONGEST_LEFT_OUT_S = 60.0


@dataclass(slots=True, eq=False)
class Address:
    """An address; times are in seconds of the monotonic clock."""

    url: str
    failures: int = 0
    failed_at: float = -math.inf
    back_at: float = -math.inf

    def failed(self, begun: float) -> None:
        """A request that began at `begun` failed: leave the address out. Requests that fail together count once."""
        if begun < self.failed_at:
            return
        self.failures += 1
        self.failed_at = time.monotonic()
        self.back_at = self.failed_at + min(_LEFT_OUT_S * 2 ** (min(self.failures, 10) - 1), _LONGEST_LEFT_OUT_S)

    def answered(self, begun: float) -> None:
        """Note that a request that began at `begun` was answered."""
        if self.failures and begun >= self.failed_at:
            self.failures = 0
            self.back_at = -math.inf


class Addresses:
    """The addresses of a client."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.order = [Address(url) for url in random.sample(urls, len(urls))]

    def choose(self, tried: Collection[Address]) -> Address:
        """The address for the next request: one that was not tried, unless all were."""
        fresh = [address for address in self.order if address not in tried] or self.order
        now = time.monotonic()
        return next((address for address in fresh if address.back_at <= now), min(fresh, key=lambda a: a.back_at))


class Route:
    """The addresses that one call, or one loop of a worker, has tried since its last answer."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._tried: set[Address] = set()
        self._all_tried = False

    @property
    def goes_on(self) -> bool:
        """Whether some address has not been tried yet."""
        return not self._all_tried and len(self._tried) < len(self._addresses.order)

    def next(self) -> Address:
        """The address for the next request."""
        if len(self._tried) == len(self._addresses.order):
            self._tried.clear()
            self._all_tried = True
        address = self._addresses.choose(self._tried)
        self._tried.add(address)
        return address

    def answered(self) -> None:
        """Note that a request was answered: the next failure counts as the first."""
        self._tried.clear()
        self._all_tried = False
