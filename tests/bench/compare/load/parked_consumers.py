"""Many consumers wait at once: what they cost, and how soon one of them has a job."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.bench.compare import Parked
from tests.bench.compare.load.conversations import Conversation, talk

_WAKES = 50
_PATIENCE_S = 30


@dataclass
class Lot:
    """How to fill it, at one system."""

    connect: Callable[[], socket.socket]
    consume: Callable[[Callable[[object], None]], Conversation]  # calls with each job that it gets
    waiting: Callable[[], int]  # consumers that wait now
    cost: Callable[[], tuple[int, int]]  # bytes, connections at the store
    add: Callable[[], None]  # a ready job


@dataclass
class _Waker:
    """Adds one job after the other once all wait; in a thread of its own."""

    lot: Lot
    number: int
    ms: list[float] = field(default_factory=list)
    cost: tuple[int, int] = (0, 0)
    _begun: float = 0
    _woken: threading.Event = field(default_factory=threading.Event)

    def took(self, _: object) -> None:
        self.ms.append((time.perf_counter() - self._begun) * 1000)
        self._woken.set()

    def run(self) -> None:
        end = time.monotonic() + _PATIENCE_S
        while self.lot.waiting() < self.number and time.monotonic() < end:
            time.sleep(0.05)
        self.cost = self.lot.cost()
        for _ in range(_WAKES):
            self._woken.clear()
            self._begun = time.perf_counter()
            self.lot.add()
            self._woken.wait(_PATIENCE_S)


def park(number: int, lot: Lot) -> Parked:
    """Let so many wait."""
    before = lot.cost()
    waker = _Waker(lot, number)
    sockets = [lot.connect() for _ in range(number)]
    thread = threading.Thread(target=waker.run)
    try:
        thread.start()
        talk([(each, lot.consume(waker.took)) for each in sockets], lambda: len(waker.ms) == _WAKES)
        thread.join()
    finally:
        for each in sockets:
            each.close()
    return Parked(number, waker.cost[0] - before[0], waker.cost[1] - before[1], waker.ms)


def allow_files(number: int) -> None:
    """Let this process and those that it starts open so many files, as far as the machine lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))
