"""What systems over plain sockets share: new ids, and conversations (conversations.py)."""

from __future__ import annotations

import socket
from abc import abstractmethod
from collections.abc import Callable

from tests.bench.compare import System, job_id
from tests.bench.compare.load.conversations import Conversation, never, talk


class OverSockets(System):
    """A system over plain sockets."""

    _next = 0  # number of the next id

    @abstractmethod
    def _connect(self) -> socket.socket:
        """A new connection to it."""

    def _ids(self, number: int) -> list[str]:
        self._next += number
        return [job_id(each) for each in range(self._next - number, self._next)]

    def _talk(self, conversations: list[Conversation], done: Callable[[], bool] = never) -> None:
        sockets = [self._connect() for _ in conversations]
        try:
            talk(zip(sockets, conversations, strict=True), done)
        finally:
            for each in sockets:
                each.close()
