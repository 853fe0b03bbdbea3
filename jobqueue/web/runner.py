"""Runs the application on the connections of this package. aiohttp has no public way to choose their class."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from aiohttp import web

from jobqueue.access.connections import ConnectionLimits
from jobqueue.web.connection import Answerer, Connection
from jobqueue.web.refusals import in_json


class _Server(web.Server):
    def __init__(
        self,
        answerer: Answerer,
        limits: ConnectionLimits,
        allows: Callable[[object], bool] | None,
        *arguments: Any,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._answerer = answerer
        self._limits = limits
        self._allows = allows

    def __call__(self) -> Connection:
        if self._allows is None:
            return Connection(self, self._answerer, self._limits, loop=self._loop, **self._kwargs)
        return _Guarded(self._allows, self, self._answerer, self._limits, loop=self._loop, **self._kwargs)


class _Guarded(Connection):
    """A connection that is closed at once if its client may not connect."""

    __slots__ = ("_allows",)

    def __init__(self, allows: Callable[[object], bool], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._allows = allows

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._allows(transport.get_extra_info("peername")):
            cast(asyncio.Transport, transport).abort()


class Runner(web.AppRunner):
    """As aiohttp's, but simple requests go to `answerer`, and connections keep to the limits. With `allows`, only the
    clients are let in whose address it allows."""

    def __init__(
        self,
        application: web.Application,
        answerer: Answerer,
        limits: ConnectionLimits,
        allows: Callable[[object], bool] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(application, **options)
        self._answerer = answerer
        self._limits = limits
        self._allows = allows

    async def _make_server(self) -> web.Server:
        made: Any = await super()._make_server()
        return _Server(
            self._answerer,
            self._limits,
            self._allows,
            in_json(made.request_handler),
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=asyncio.get_running_loop(),
            **made._kwargs,
        )
