"""Runs the console until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

import structlog
from aiohttp import web

from jobqueue.console.options import Options
from jobqueue.console.site import Site
from jobqueue.loops import stop_on_signals

log = structlog.get_logger()

_GRACE_S = 2.0
_NICE = 10  # pages give way to the service, if it is on this machine: a page may wait, jobs may not


async def serve(options: Options, listens: Callable[[], None] = lambda: None, *, shares_port: bool = False) -> None:
    """`listens` is called when it does; `shares_port`: another process holds the port for it. Raises OSError where the
    address is taken or is not this machine's."""
    with contextlib.suppress(OSError):  # a sandbox may forbid it
        os.nice(_NICE)
    stop = asyncio.Event()
    stop_on_signals(stop.set)
    runner = web.AppRunner(
        Site(options).application,
        access_log=None,
        auto_decompress=False,  # no form needs it
        shutdown_timeout=_GRACE_S,
    )
    await runner.setup()
    certificate = options.certificate
    looking = asyncio.create_task(certificate.run()) if certificate else None
    try:
        context = certificate.context if certificate else None
        await web.TCPSite(
            runner, options.host, options.port, ssl_context=context, reuse_port=shares_port or None
        ).start()
        host, port = runner.addresses[0][:2]
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        url = f"{'https' if certificate else 'http'}://{place}{options.base_path}/"
        log.info("console.started", url=url, service=options.url)
        listens()
        await stop.wait()
    finally:
        if looking:
            looking.cancel()
        await runner.cleanup()
    log.info("console.stopped")
