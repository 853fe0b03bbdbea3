"""A headless Chromium, and a server of pages that tell how their requests ended."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.kit.ports import free_port

CHROMIUM = shutil.which("chromium")
_PAGE = Path(__file__).with_name("attacks.html")
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--no-proxy-server"),
    "--host-resolver-rules=MAP * 127.0.0.1",
)
Attempt = tuple[str, str, str | None, str | None]
"""A way of `attacks.html`, a URL, a body, and a method."""


@asynccontextmanager
async def browsing(url: str, folder: Path) -> AsyncIterator[None]:
    """A browser that has opened a page. Every name is 127.0.0.1 to it."""
    assert CHROMIUM
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, *_FLAGS, f"--user-data-dir={folder}", url, stdout=quiet, stderr=quiet
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


class Pages:
    """Serves one page, on a port of its own, and collects how its attempts ended. It begins with them at `go`.
    `home`: the URL of another one that does the latter. `async with`."""

    def __init__(self, attempts: Sequence[Attempt], home: str = "", port: int | None = None) -> None:
        self.port = port or free_port()
        self.was_opened = asyncio.Event()
        self.go = asyncio.Event()
        self._outcomes: asyncio.Future[list[list[str]]] = asyncio.get_running_loop().create_future()
        text = _PAGE.read_text().replace("/*attempts*/[]", json.dumps(attempts))
        self._text = text.replace('/*home*/""', json.dumps(home))
        self._runner = web.AppRunner(self._application(), shutdown_timeout=0.1)

    def _application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/", self._page)
        application.router.add_get("/go", self._released)
        application.router.add_post("/report", self._reported)
        return application

    async def _page(self, request: web.Request) -> web.Response:
        self.was_opened.set()
        return web.Response(text=self._text, content_type="text/html", headers={"Connection": "close"})

    async def _released(self, request: web.Request) -> web.Response:
        await self.go.wait()
        return web.Response()

    async def _reported(self, request: web.Request) -> web.Response:
        self._outcomes.set_result(json.loads(await request.text()))
        return web.Response()

    async def outcomes(self) -> list[list[str]]:
        """How the attempts ended, once the page has made all."""
        async with asyncio.timeout(90):
            return await self._outcomes

    async def __aenter__(self) -> Pages:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._runner.cleanup()
