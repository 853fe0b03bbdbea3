"""The options of a client, validated before anything is sent."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from jobqueue_client.access.options import Access
from jobqueue_client.answers import Loads, loads

_A_DAY_S = 86_400
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


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
    headers: Mapping[str, str] = field(repr=False)  # they may have credentials
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
