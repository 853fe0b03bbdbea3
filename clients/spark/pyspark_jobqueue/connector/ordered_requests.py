"""Sends the rows of a task: several requests at a time, yet the rows of one id strictly one after the other.

The id of a row determines its sender. A sender has one request in flight and at most one waiting, so that a task that
is faster than the service is held back. A request contains an id only once: otherwise a row that is retried could run
after a later row with the same id. All requests of a task share its rate limit, in rows per second.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from zlib import crc32

from pyspark_jobqueue.connector.commands import Row
from pyspark_jobqueue.connector.service import Answer, Service

_REQUESTS_A_SECOND = 10


class RateLimit:
    """Limits the rows per second, evenly: each request waits for the time that the rows of earlier requests take at
    this rate."""

    def __init__(self, rows_per_second: int | None) -> None:
        self._rate = rows_per_second
        self._lock = threading.Lock()
        self._next = 0.0

    def at_most(self, rows: int) -> int:
        """The number of rows (up to `rows`) that a request may have: few enough that the rows are not sent in one burst
        per second."""
        return rows if self._rate is None else min(rows, max(1, self._rate // _REQUESTS_A_SECOND))

    def wait_s(self, rows: int) -> float:
        """Count this many rows, and return the seconds to wait before sending them."""
        if self._rate is None:
            return 0.0
        with self._lock:
            now = time.monotonic()
            begin = max(now, self._next)
            self._next = begin + rows / self._rate
            return begin - now


_MOST_BYTES = 4 << 20
_MOST_WAITING = 2

Settle = Callable[[Sequence[Row], Sequence[Answer]], None]


class OrderedRequests:
    """`put` all rows, then `finish`; if anything raises, `abandon`. For use by one thread.

    `settle` is called in that thread, with rows and their answers.
    """

    def __init__(self, service: Service, number: int, most_rows: int, rate_limit: RateLimit, settle: Settle) -> None:
        self._most_rows = rate_limit.at_most(most_rows)
        self._stopped = threading.Event()
        self._service = service
        self._senders = [
            _Sender(_Send(service, rate_limit, self._stopped), self._most_rows, settle) for _ in range(number)
        ]
        self._began = False

    def put(self, row: Row) -> None:
        """Queue a row, and send a request once it is full. Raises Refused, Unreachable, and any error from `settle`."""
        sender = self._senders[crc32(row.id.encode()) % len(self._senders)]
        sender.rows.append(row)
        sender.size += len(row.command)
        if len(sender.rows) >= self._most_rows or sender.size >= _MOST_BYTES:
            self._began = True
            sender.send()
            for each in self._senders:
                each.settle_done()

    def finish(self) -> None:
        """Send what is left, and wait for all answers. Raises like `put`."""
        if not self._began:
            self._concentrate()
        for sender in self._senders:
            while sender.rows:
                sender.send()
        for sender in self._senders:
            sender.end()
        self._service.close()

    def abandon(self) -> None:
        """Send nothing more, and wait for the requests in flight: no request may outlive the task."""
        self._stopped.set()
        self._service.stop()
        for sender in self._senders:
            sender.close()
        self._service.close()

    def _concentrate(self) -> None:
        """Put few rows into few requests: use no more senders than there are full requests."""
        number = -(-sum(len(sender.rows) for sender in self._senders) // self._most_rows)
        for place, sender in enumerate(self._senders):
            rows, sender.rows = sender.rows, []
            # Never move rows to a later sender, whose own rows have not been moved yet.
            self._senders[place * number // len(self._senders)].rows += rows


class _Send:
    """The function that the thread of a sender runs."""

    def __init__(self, service: Service, rate_limit: RateLimit, stopped: threading.Event) -> None:
        self._service, self._rate_limit, self._stopped = service, rate_limit, stopped

    def __call__(self, rows: Sequence[Row]) -> list[Answer]:
        """Send a request; do nothing once the task has failed."""
        if self._stopped.wait(self._rate_limit.wait_s(len(rows))):
            return []
        return self._service.batch([row.command for row in rows])


class _Sender:
    """One thread with its connection. `rows` are not in a request yet, and have `size` bytes."""

    def __init__(self, send_request: _Send, most_rows: int, settle: Settle) -> None:
        self.rows: list[Row] = []
        self.size = 0
        self._send_request, self._most_rows, self._settle = send_request, most_rows, settle
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: deque[tuple[Sequence[Row], Future[list[Answer]]]] = deque()

    def send(self) -> None:
        """Send the first rows as a request. Waits while two requests are under way."""
        rows, self.rows = _request(self.rows, self._most_rows)
        self.size = sum(len(row.command) for row in self.rows)
        if len(self._under_way) == _MOST_WAITING:
            self._settle_first()
        self._thread = self._thread or ThreadPoolExecutor(1)
        self._under_way.append((rows, self._thread.submit(self._send_request, rows)))

    def settle_done(self) -> None:
        """Settle the answers that have arrived."""
        while self._under_way and self._under_way[0][1].done():
            self._settle_first()

    def end(self) -> None:
        """Wait for all answers."""
        while self._under_way:
            self._settle_first()
        self.close()

    def close(self) -> None:
        if self._thread:
            self._thread.shutdown()
            self._thread = None

    def _settle_first(self) -> None:
        rows, answers = self._under_way.popleft()
        self._settle(rows, answers.result())


def _request(rows: Sequence[Row], most_rows: int) -> tuple[list[Row], list[Row]]:
    """The rows of the next request, each id once, and the rows left for later, in order."""
    now: dict[str, Row] = {}
    later: list[Row] = []
    size = 0
    for place, row in enumerate(rows):
        size += len(row.command) + 1
        if len(now) == most_rows or (now and size > _MOST_BYTES):
            return list(now.values()), later + list(rows[place:])
        if row.id in now:
            later.append(row)
        else:
            now[row.id] = row
    return list(now.values()), later
