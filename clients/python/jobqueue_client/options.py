"""A client's options, checked: what both clients need to know before they send anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Options:
    """Where the service is, and how long to wait for it. ValueError where an option cannot be."""

    url: str
    timeout_s: float
    connect_timeout_s: float
    retry_for_s: float
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_url(self.url)
        if self.timeout_s <= 0 or self.connect_timeout_s <= 0 or self.retry_for_s < 0:
            raise ValueError("timeout_s and connect_timeout_s must be above 0, retry_for_s not below it")
        for name, value in self.headers.items():
            if not f"{name}{value}".isascii() or not f"{name}{value}".isprintable() or not name:
                raise ValueError(f"the header {name!r} cannot be sent: name and value must be printable ASCII")

    @property
    def command_url(self) -> str:
        return self.url.rstrip("/") + "/command"

    @property
    def all_headers(self) -> dict[str, str]:
        return {"Content-Type": "application/json", **self.headers}


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError(f"{url!r} is no URL of a service, like http://localhost:8000")
    if not url.isascii() or not url.isprintable() or " " in url or parts.port == 0:
        raise ValueError(f"{url!r} is no URL of a service, like http://localhost:8000")
