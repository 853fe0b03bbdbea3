"""The addresses of the service, and the order in which they are tried. Without any I/O.

The list is shuffled once per client, so that load spreads. A request goes to the first address that is not left out. An
address that failed is left out for a while, longer with each failure in a row. If all are left out, the one that comes
back first is tried. Changes are single assignments, so that threads need no lock.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

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
        """A request that began at `begun` was answered."""
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
        """Whether there is an address that was not tried yet."""
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
        """A request was answered: the next failure is a first one."""
        self._tried.clear()
        self._all_tried = False
