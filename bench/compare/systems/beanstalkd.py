"""beanstalkd, a server in C with its own protocol, from its Debian package."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from bench.compare import Cpu
from bench.compare.install import program
from bench.compare.load.conversations import connect
from bench.compare.load.driven import Driven
from bench.compare.processes import cpu_us, memory
from tests.kit.ports import free_port


class Beanstalkd(Driven):
    NAME = "beanstalkd"
    DESCRIPTION = (
        "In memory, without a binlog, as it starts by default, over TCP; batches pipelined; who waits takes one job at "
        "a time, and sends delete and the next reserve in one write. Delays are whole seconds, rounded up. It numbers "
        "jobs itself and knows no repeated add: the id of 20 characters stands in the body"
    )
    DIALECT = "beanstalk"
    ADDS_A_SECOND = 25_000
    CYCLE_JOINED = False

    def start(self, folder: Path) -> None:
        self._command, self._environment = program("beanstalkd")
        self._run()

    def _run(self) -> None:
        self._port = free_port()
        self._process = subprocess.Popen(
            [self._command, "-l", "127.0.0.1", "-p", str(self._port)], env=self._environment, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 10
        while True:
            try:
                return connect(self._address()).close()
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

    def _costs(self) -> tuple[int, int]:
        """The bytes and the connections to a store, which consumers that wait add to."""
        return self.memory(), 0

    def _waiting(self) -> int:
        """Consumers waiting now."""
        with connect(self._address()) as connection:
            connection.sendall(b"stats\r\n")
            said = connection.recv(1 << 16)
        return int(said.partition(b"current-waiting: ")[2].partition(b"\n")[0])

    def _address(self) -> str:
        return str(self._port)
