"""The fault-injecting proxy, for blocking tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Self

from tests.conformance.proxy import Fault, Proxy, Request


class Breaking:
    """A `Proxy` in front of a service, in a thread of its own. A context manager."""

    def __init__(self, target: str, faults: Sequence[Fault]) -> None:
        self._proxy = Proxy(target)
        self._proxy.faults += faults
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return self._proxy.url

    @property
    def requests(self) -> list[Request]:
        return self._proxy.requests

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._proxy.__aenter__(), self._loop).result(30)
        return self

    def __exit__(self, *exception: object) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.__aexit__(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()
