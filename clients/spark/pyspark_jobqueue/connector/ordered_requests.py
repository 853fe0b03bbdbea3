"""The rows of a task on their way: several requests at a time, and the rows of one id one after the other.

A row's lane follows from its id. A lane has one request under way and at most one behind it, so that a task that is
faster than the service waits. A request has an id once: what the service has to repeat for one row would else come
behind a later row of the same id.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from zlib import crc32

from pyspark_jobqueue.connector.commands import Row
from pyspark_jobqueue.connector.rate_limit import RateLimit
from pyspark_jobqueue.connector.service import Answer, Service

_MOST_BYTES = 4 << 20
_MOST_WAITING = 2

Settle = Callable[[Sequence[Row], Sequence[Answer]], None]


class OrderedRequests:
    """`put` all rows, then `finish`; where something raises, `abandon`. For one thread.

    `settle` is called in that thread, with rows and their answers.
    """

    def __init__(self, service: Service, number: int, most_rows: int, pace: RateLimit, settle: Settle) -> None:
        self._most_rows = pace.at_most(most_rows)
        self._stopped = threading.Event()
        self._service = service
        self._lanes = [_Lane(_Sending(service, pace, self._stopped), self._most_rows, settle) for _ in range(number)]
        self._began = False

    def put(self, row: Row) -> None:
        """Send a row, together with others. Raises what `settle` raises, Refused and Unreachable."""
        lane = self._lanes[crc32(row.id.encode()) % len(self._lanes)]
        lane.rows.append(row)
        lane.size += len(row.command)
        if len(lane.rows) >= self._most_rows or lane.size >= _MOST_BYTES:
            self._began = True
            lane.send()
            for each in self._lanes:
                each.settle_done()

    def finish(self) -> None:
        """Send the rest, and wait for all answers. Raises as `put`."""
        if not self._began:
            self._gather()
        for lane in self._lanes:
            while lane.rows:
                lane.send()
        for lane in self._lanes:
            lane.end()
        self._service.close()

    def abandon(self) -> None:
        """Send nothing more, and wait for what is under way: a task must not go on behind its own back."""
        self._stopped.set()
        self._service.stop()
        for lane in self._lanes:
            lane.close()
        self._service.close()

    def _gather(self) -> None:
        """Few rows go in few requests: no more lanes than there are full ones."""
        number = -(-sum(len(lane.rows) for lane in self._lanes) // self._most_rows)
        for place, lane in enumerate(self._lanes):
            rows, lane.rows = lane.rows, []
            self._lanes[place * number // len(self._lanes)].rows += rows  # no lane to the right of its own


class _Sending:
    """What a lane's thread does."""

    def __init__(self, service: Service, pace: RateLimit, stopped: threading.Event) -> None:
        self._service, self._pace, self._stopped = service, pace, stopped

    def __call__(self, rows: Sequence[Row]) -> list[Answer]:
        """Nothing once the task has failed."""
        if self._stopped.wait(self._pace.wait_s(len(rows))):
            return []
        return self._service.batch([row.command for row in rows])


class _Lane:
    """One thread with its connection. `rows` are those that no request has yet, and have `size` bytes."""

    def __init__(self, sending: _Sending, most_rows: int, settle: Settle) -> None:
        self.rows: list[Row] = []
        self.size = 0
        self._sending, self._most_rows, self._settle = sending, most_rows, settle
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: deque[tuple[Sequence[Row], Future[list[Answer]]]] = deque()

    def send(self) -> None:
        """Make a request of the first rows; waits while two are under way."""
        rows, self.rows = _request(self.rows, self._most_rows)
        self.size = sum(len(row.command) for row in self.rows)
        if len(self._under_way) == _MOST_WAITING:
            self._settle_first()
        self._thread = self._thread or ThreadPoolExecutor(1)
        self._under_way.append((rows, self._thread.submit(self._sending, rows)))

    def settle_done(self) -> None:
        """Look at the answers that are there."""
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
    """The rows of the next request, each id once, and those for later, in their order."""
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
