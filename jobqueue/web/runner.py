"""Runs the application on the connections of this package. aiohttp has no public way to choose their class."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from jobqueue.access.connections import ConnectionLimits
from jobqueue.web.connection import Answerer, Connection
from jobqueue.web.refusals import in_json


class _Server(web.Server):
    def __init__(self, answerer: Answerer, limits: ConnectionLimits, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._answerer = answerer
        self._limits = limits

    def __call__(self) -> Connection:
        return Connection(self, self._answerer, self._limits, loop=self._loop, **self._kwargs)


class Runner(web.AppRunner):
    """As aiohttp's, but simple requests go to `answerer`, and connections keep to the limits."""

    def __init__(
        self, application: web.Application, answerer: Answerer, limits: ConnectionLimits, **options: Any
    ) -> None:
        super().__init__(application, **options)
        self._answerer = answerer
        self._limits = limits

    async def _make_server(self) -> web.Server:
        made: Any = await super()._make_server()
        return _Server(
            self._answerer,
            self._limits,
            in_json(made.request_handler),
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=asyncio.get_running_loop(),
            **made._kwargs,
        )
