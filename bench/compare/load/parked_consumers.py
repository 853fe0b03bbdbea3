"""Many waiting consumers: what they cost, and how soon one of them gets a job."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.compare import Parked
from bench.compare.load.conversations import Conversation, talk

_WAKES = 50
_PATIENCE_S = 30


@dataclass
class Lot:
    """How to park consumers at one system."""

    connect: Callable[[], socket.socket]
    consume: Callable[[Callable[[object], None]], Conversation]  # is called with each job that arrives
    waiting: Callable[[], int]  # consumers waiting now
    cost: Callable[[], tuple[int, int]]  # bytes, and connections to the store
    add: Callable[[], None]  # adds a ready job


@dataclass
class _Waker:
    """Adds jobs one after another once all consumers wait, in a thread of its own."""

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
    """Park this many consumers."""
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
    """Let this process and its children open this many files, as far as the machine permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))
