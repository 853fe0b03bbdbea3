"""The figures of tokens: what was done with each, and when it expires."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Literal, Protocol

from prometheus_client import CollectorRegistry, Gauge

from jobqueue.metrics.series import Count

OTHER = "other"
_MOST = 100  # tokens with figures of their own
_NEWEST: Literal["livemostrecent"] = "livemostrecent"  # all processes know the same tokens


class Used(Protocol):
    """What was done with a token, in this process."""

    name: str
    counts: dict[str, int]
    """Commands by verdict; emptied when they are counted here."""
    requests: int
    """Those that were let in."""
    told: int
    """How many of them are counted here."""


class Live(Protocol):
    """A token."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def expires(self) -> float | None:
        """In unix seconds; None: never."""


class TokenFigures:
    """The figures of tokens in one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.commands = Count(
            registry,
            "jobqueue_token_commands_total",
            "Commands by the name of their token (the first 100 names; then `other`) and the verdict on them.",
            ["token", "verdict"],
        )
        self.leases = Count(registry, "jobqueue_rate_leases_total", "Leases of permits for tokens with a rate.")
        self._number = Gauge("jobqueue_tokens", "Live tokens.", registry=registry, multiprocess_mode=_NEWEST)
        self._expires = Gauge(
            "jobqueue_token_expires_timestamp_seconds",
            "When a token expires, in unix seconds; +Inf: never, or it is gone.",
            ["token"],
            registry=registry,
            multiprocess_mode=_NEWEST,
        )
        self._names: set[str] = set()
        self.used: Callable[[], Iterable[Used]] = tuple
        """The tokens that were used in this process."""
        self.live: Callable[[], Iterable[Live]] = tuple
        """All live tokens."""

    def pour(self, judged: Callable[[str, int], None]) -> None:
        """Update the registry. `judged`: counts requests and commands by the verdict on them."""
        for grant in self.used():
            judged("ok", grant.requests - grant.told)
            grant.told = grant.requests
            for verdict, number in grant.counts.items():
                if number:
                    self.commands.add(self._label(grant.name), verdict, n=number)
                    if verdict != "ok":
                        judged(verdict, number)
                    grant.counts[verdict] = 0
        self.commands.pour()
        self.leases.pour()
        self._show_live()

    def _show_live(self) -> None:
        live = {token.name: token.expires for token in self.live()}
        self._number.set(len(live))
        for name in live:
            self._label(name)
        for name in self._names:
            expires = live.get(name)
            self._expires.labels(name).set(inf if expires is None else expires)

    def _label(self, name: str) -> str:
        if name not in self._names and len(self._names) < _MOST:
            self._names.add(name)
        return name if name in self._names else OTHER
