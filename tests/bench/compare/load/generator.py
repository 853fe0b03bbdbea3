"""The cost of the load generator itself, against a server that does nothing."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.bench.compare import FAR_S, MissingError, job_id
from tests.bench.compare.load.conversations import Conversation, talk
from tests.bench.compare.load.requests import TOPIC, add
from tests.bench.compare.load.wrk import wrk
from tests.ports import free_port

_SERVER = [sys.executable, str(Path(__file__).parents[1] / "programs" / "trivial.py")]
_SECONDS = 1.0
_BATCH = 100


def cost() -> str:
    """A sentence with the CPU microseconds of wrk per request, of our own generator per request, and per job in batches
    of 100."""
    port = free_port()
    with subprocess.Popen([*_SERVER, str(port)]) as server:
        try:
            _wait(port)
            own, batch = (_talk_us(port, connections, size) for connections, size in ((64, 1), (8, _BATCH)))
            said = f"our own {own:.1f} us a request and {batch:.2f} us a job in batches of {_BATCH}"
            with suppress(MissingError):
                said = f"wrk {_wrk_us(port):.1f} us of CPU a request with its script, {said}"
        finally:
            server.kill()
    return said + ", against a server that does nothing"


def _wait(port: int) -> None:
    end = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def _talk_us(port: int, connections: int, size: int) -> float:
    jobs, end = 0, time.perf_counter() + _SECONDS
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]

    def adding() -> Conversation:
        nonlocal jobs
        while time.perf_counter() < end:
            yield from add([job_id(jobs + each) for each in range(size)], [f'"delay":{FAR_S}'] * size, 0)
            jobs += size

    begun = time.process_time()
    talk([(each, adding()) for each in sockets])
    used = time.process_time() - begun
    for each in sockets:
        each.close()
    return 1e6 * used / jobs


def _wrk_us(port: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    jobs = wrk(port, 64, "add", _SECONDS, 0, TOPIC).jobs
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e6 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / jobs
