"""A service manager as far as a service sees it: a datagram socket on which it is notified."""

from __future__ import annotations

import asyncio
import socket
import time
from types import TracebackType

from tests.kit.waiting import until


class ServiceManager:
    """The socket, and what came. `with`, in a running loop. `address` as NOTIFY_SOCKET has it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.heard: list[str] = []
        """The first line of each message, without the watchdog's."""
        self.messages: list[str] = []
        self.last = time.monotonic()
        """When the last message came."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    async def hears(self, *words: str) -> None:
        """Wait until these, and nothing else, have come, in this order."""
        await until(lambda: self.heard == list(words), within_s=30)

    async def hears_watchdog(self, times: int) -> None:
        """Wait until the watchdog has heard of the service some times more."""
        wanted = self.messages.count("WATCHDOG=1") + times
        await until(lambda: self.messages.count("WATCHDOG=1") >= wanted, within_s=30)

    async def hears_nothing(self, for_s: float) -> None:
        """Wait until nothing has come for some time."""
        await until(lambda: time.monotonic() - self.last > for_s, within_s=30)

    def _hear(self) -> None:
        message = self._socket.recv(4096).decode()
        self.last = time.monotonic()
        self.messages.append(message)
        if message != "WATCHDOG=1":
            self.heard.append(message.partition("\n")[0])

    def __enter__(self) -> ServiceManager:
        self._socket.bind("\0" + self.address[1:] if self.address.startswith("@") else self.address)
        asyncio.get_running_loop().add_reader(self._socket, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
