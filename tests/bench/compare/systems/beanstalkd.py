"""beanstalkd, a server in C with its own protocol, from its Debian package."""

from __future__ import annotations

import math
import re
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.bench.compare import (
    BATCHERS,
    CONSUMERS,
    FAR_S,
    PARKING_S,
    Cpu,
    Deadline,
    Late,
    Parked,
    Run,
    WrongError,
    check,
    check_times,
    pages,
)
from tests.bench.compare.install import program
from tests.bench.compare.load.conversations import Conversation
from tests.bench.compare.load.parked_consumers import Lot, park
from tests.bench.compare.load.sockets import OverSockets
from tests.bench.compare.processes import cpu_us, memory
from tests.ports import free_port

_TTR_S = 60
_PAGE = 500
_ADDS_A_SECOND = 5_000  # at least; one after another
_BYTES = 100
_ANSWERS = re.compile(rb"RESERVED (\d+) 100\r\n(.{20}).{80}\r\n|TIMED_OUT\r\n")

Take = Callable[[list[str]], None]


class Beanstalkd(OverSockets):
    NAME = "beanstalkd"
    DESCRIPTION = (
        "In memory, without a binlog, as it starts by default, over TCP; Python on plain sockets, batches pipelined; "
        "who waits sends delete and the next reserve in one write. Delays are whole seconds: rounded up for lateness "
        "and burst, none in the whole cycle. It numbers jobs itself and knows no repeated add: the id of 20 characters "
        "stands in the body. One at a time our client is the limit, not beanstalkd"
    )

    def start(self, folder: Path) -> None:
        self._command, self._environment = program("beanstalkd")
        self._next = 0
        self._run()

    def _run(self) -> None:
        self._port = free_port()
        self._process = subprocess.Popen(
            [self._command, "-l", "127.0.0.1", "-p", str(self._port)], env=self._environment, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 10
        while True:
            try:
                return self._connect().close()
            except ConnectionRefusedError:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("beanstalkd did not start") from None
                time.sleep(0.01)

    def stop(self) -> None:
        if hasattr(self, "_process"):
            self._process.kill()
            self._process.wait()

    def version(self) -> str:
        path, environment = program("beanstalkd")
        said = subprocess.run([path, "-v"], env=environment, capture_output=True, text=True, check=True).stdout
        return said.strip().removeprefix("beanstalkd ")

    def clear(self) -> None:
        self.stop()
        self._run()

    def cpu(self) -> Cpu:
        return Cpu(cpu_us(self._process.pid), 0.0)

    def memory(self) -> int:
        return memory(self._process.pid)

    def add_one(self, seconds: float, connections: int) -> Run:
        return self._add_for(seconds, connections, 1)

    def add_batch(self, seconds: float, size: int) -> Run:
        return self._add_for(seconds, BATCHERS, size)

    def fill(self, jobs: int) -> None:
        self._put(self._ids(jobs), lambda: FAR_S)

    def pop_finish_one(self, jobs: int, connections: int) -> Run:
        return self._pop_finish(jobs, connections, 1)

    def pop_finish_batch(self, jobs: int, size: int) -> Run:
        return self._pop_finish(jobs, BATCHERS, size)

    def cycle(self, jobs: int, size: int) -> Run:
        ids, got = self._ids(jobs), list[str]()
        parts = pages(ids, size)

        def adding() -> Conversation:
            for page in parts:
                yield from _add(page, 0)

        def work() -> int:
            conversations = [adding() for _ in range(BATCHERS // 2)]
            conversations += [_work_off(got.extend, size, lambda: len(got) == jobs) for _ in range(BATCHERS // 2)]
            self._talk(conversations)
            return jobs

        run = self.timed(work)
        check(got, ids)
        return run

    def lateness(self, rate: int, seconds: float) -> Late:
        ids = self._ids(round(rate * seconds))
        deadline = Deadline(len(ids), _ADDS_A_SECOND)
        due_s = {each: deadline.ms / 1000 + number / rate for number, each in enumerate(ids)}
        got, ms = list[str](), list[float]()

        def take(page: list[str]) -> None:
            now_s = time.time()
            ms.extend((now_s - due_s[each]) * 1000 for each in page)
            got.extend(page)

        def adding() -> Conversation:
            for each in ids:
                yield from _add([each], _delay_s(due_s[each]))

        self._talk([adding()])
        deadline.added()
        self._talk([_consume(take) for _ in range(CONSUMERS)], lambda: len(got) == len(ids))
        check(got, ids)
        deadline.check()
        return Late(check_times(ms))

    def burst(self, jobs: int) -> Run:
        ids, got = self._ids(jobs), list[str]()
        deadline = Deadline(jobs, _ADDS_A_SECOND)
        due_s = deadline.ms / 1000

        def work() -> int:
            self._talk([_consume(got.extend) for _ in range(CONSUMERS)], lambda: len(got) == jobs)
            return jobs

        self._put(ids, lambda: _delay_s(due_s))
        deadline.added()
        time.sleep(max(0.0, due_s - time.time() - PARKING_S))
        run = self.timed(work)
        seconds = time.time() - due_s
        check(got, ids)
        deadline.check()
        return replace(run, seconds=seconds)

    def parked(self, number: int) -> Parked:
        lot = Lot(
            self._connect,
            _consume,
            self._waiting,
            self._costs,
            lambda: self._put(self._ids(1), lambda: 0),
        )
        return park(number, lot)

    def _costs(self) -> tuple[int, int]:
        """The bytes and the connections to a store, which consumers that wait add to."""
        return self.memory(), 0

    def _waiting(self) -> int:
        """Consumers waiting now."""
        with self._connect() as connection:
            connection.sendall(b"stats\r\n")
            said = connection.recv(1 << 16)
        return int(said.partition(b"current-waiting: ")[2].partition(b"\n")[0])

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _add_for(self, seconds: float, connections: int, size: int) -> Run:
        first, end = self._next, time.perf_counter() + seconds

        def adding() -> Conversation:
            while time.perf_counter() < end:
                yield from _add(self._ids(size), FAR_S)

        def work() -> int:
            self._talk([adding() for _ in range(connections)])
            return self._next - first

        return self.timed(work)

    def _put(self, ids: list[str], delay_s: Callable[[], int]) -> None:
        def adding() -> Conversation:
            for page in pages(ids, _PAGE):
                yield from _add(page, delay_s())

        self._talk([adding()])

    def _pop_finish(self, jobs: int, connections: int, size: int) -> Run:
        ids, got = self._ids(jobs), list[str]()
        self._put(ids, lambda: 0)

        def work() -> int:
            self._talk([_work_off(got.extend, size, lambda: len(got) == jobs) for _ in range(connections)])
            return len(got)

        run = self.timed(work)
        check(got, ids)
        return run


def _delay_s(due_s: float) -> int:
    """The delay in whole seconds, rounded so that no job is early."""
    return max(0, math.ceil(due_s - time.time()))


def _add(ids: list[str], delay_s: int) -> Conversation:
    puts = [f"put 100 {delay_s} {_TTR_S} {_BYTES}\r\n{each:{_BYTES}}\r\n" for each in ids]
    answer = yield "".join(puts).encode(), _lines(len(ids))
    if answer.count(b"INSERTED") != len(ids):
        raise WrongError(f"not all were put: {answer[:500]!r}")


def _work_off(take: Take, size: int, done: Callable[[], bool]) -> Conversation:
    """Reserve and delete ready jobs until done."""
    while not done():
        answer = yield b"reserve-with-timeout 0\r\n" * size, _reserved(size)
        jobs = [job for job in _ANSWERS.findall(answer) if job[0]]
        if jobs:
            take([name.decode() for _, name in jobs])
            yield b"".join(b"delete %b\r\n" % number for number, _ in jobs), _lines(len(jobs))


def _consume(take: Take) -> Conversation:
    """Wait for a job; delete it in the same write as the wait for the next one. Never ends."""
    question = b"reserve\r\n"
    while True:
        found = _ANSWERS.search((yield question, _reserved(1)))
        assert found
        take([found[2].decode()])
        question = b"delete %b\r\nreserve\r\n" % found[1]


def _lines(number: int) -> Callable[[bytes], bytes | None]:
    return lambda arrived: arrived if arrived.count(b"\r\n") >= number else None


def _reserved(number: int) -> Callable[[bytes], bytes | None]:
    return lambda arrived: arrived if len(_ANSWERS.findall(arrived)) >= number else None
