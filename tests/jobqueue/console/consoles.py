"""A console in this process, the service behind it in one of its own, and browsers that look at it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, async_playwright

from jobqueue.console.options import Options
from jobqueue.console.site import Site
from tests.jobqueue.access.chromium import CHROMIUM
from tests.kit.ports import free_port
from tests.kit.service import Client

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_AXE = files("axe_playwright_python") / "axe.min.js"
_RUN_AXE = "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}, resultTypes: ['violations']})"
AXE_TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
OWN = {"Sec-Fetch-Site": "same-origin"}
"""What a browser says of a form of the console."""
SCHEMES = ("light", "dark")


class Console:
    """A console that is being served, and a plain client of it that follows no redirects and keeps no cookies."""

    def __init__(self, site: Site, url: str, session: aiohttp.ClientSession) -> None:
        self.site = site
        self.url = url
        self._session = session

    async def get(self, path: str, **headers: str) -> tuple[aiohttp.ClientResponse, str]:
        """The answer to a GET, and its text."""
        return await self.ask("GET", path, headers=headers)

    async def post(
        self, path: str, fields: Mapping[str, Any] | None = None, **headers: str
    ) -> tuple[aiohttp.ClientResponse, str]:
        """The answer to a form that was sent, as a page of the console sends it unless the headers say otherwise."""
        data = aiohttp.FormData(_pairs(fields or {}))
        return await self.ask("POST", path, data=data, headers=OWN | headers)

    async def ask(self, method: str, path: str, **how: Any) -> tuple[aiohttp.ClientResponse, str]:
        async with self._session.request(method, self.url + path, allow_redirects=False, **how) as response:
            return response, await response.text()

    async def note(self, path: str, fields: Mapping[str, Any], **headers: str) -> str:
        """What the page behind an action says of it. The action has to be done."""
        response, text = await self.post(path, {"back": "/help", **fields}, **headers)
        assert response.status == 303, text
        _, page = await self.get(response.headers["Location"], **headers)
        (found,) = re.findall(r'<p class="note \w+" role="status">(.*?)</p>', page)
        return str(found)

    async def sign_in(self, token: str) -> dict[str, str]:
        """The header of a session."""
        response, text = await self.post("/sign-in", {"token": token})
        assert response.status == 303, text
        return {"Cookie": response.headers["Set-Cookie"].partition(";")[0]}


def _pairs(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    some = [(name, value if isinstance(value, list) else [value]) for name, value in fields.items()]
    return [(name, str(each)) for name, values in some for each in values]


@asynccontextmanager
async def console(service_url: str, site: type[Site] = Site, **options: Any) -> AsyncIterator[Console]:
    """A console of a service."""
    port = free_port()
    made = site(Options(url=service_url, port=port, **options))
    runner = web.AppRunner(made.application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            yield Console(made, f"http://127.0.0.1:{port}", session)
    finally:
        await runner.cleanup()


class Fault(NamedTuple):
    """What a browser has to complain about, and on which page."""

    kind: str
    text: str
    page: str


class Watched:
    """A page in a browser, and all that went wrong on it."""

    def __init__(self, page: Page, home: str) -> None:
        self.page = page
        self.requests: list[str] = []
        self.fetched: list[str] = []
        """The addresses that scripts have asked for."""
        self.faults: list[Fault] = []
        self._home = home
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.on("request", self._on_request)
        page.on("requestfinished", self._on_end)
        page.on("requestfailed", self._on_end)
        page.on("response", self._on_response)
        page.on("dialog", lambda dialog: self._note("dialog", dialog.message))

    def _note(self, kind: str, text: str) -> None:
        self.faults.append(Fault(kind, text, self.page.url))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._note("console", message.text)

    def _on_request(self, request: Request) -> None:
        self.requests.append(request.url)
        if request.resource_type in ("fetch", "xhr", "script", "eventsource", "websocket", "ping"):
            self.fetched.append(request.url)

    def _on_end(self, request: Request) -> None:
        """A request has ended, or the browser has refused to send it."""
        if not request.url.startswith(f"{self._home}/"):
            kind = "navigation" if request.is_navigation_request() else "request"
            self._note("blocked" if request.failure == "csp" else kind, request.url)

    def _on_response(self, response: Response) -> None:
        if response.status >= 500:
            self._note("status", f"{response.status} {response.url}")

    async def show(self, path: str) -> None:
        """Open a page of the console and wait until its scripts have run."""
        await self.page.goto(self._home + path, wait_until="load")

    async def axe(self) -> list[str]:
        """What axe finds that is not accessible, as sentences."""
        await self.page.evaluate(_AXE.read_text())
        found = await self.page.evaluate(_RUN_AXE, list(AXE_TAGS))
        return [
            f"{violation['id']}: {violation['help']}: {node['html'][:300]}"
            for violation in found["violations"]
            for node in violation["nodes"]
        ]


class Room(NamedTuple):
    """A console, its service, and a browser."""

    console: Console
    service: Client
    browser: Browser

    async def add(self, topic: str, number: int, **options: object) -> None:
        """Jobs `<topic>:0`, `<topic>:1`, …"""
        for begin in range(0, number, 500):
            some = range(begin, min(begin + 500, number))
            answers = await self.service.batch(
                [{"command": "add", "topic": topic, "id": f"{topic}:{each}", "body": 1, **options} for each in some]
            )
            assert all(answer["success"] for answer in answers)

    async def counts(self, topic: str) -> dict[str, int]:
        return dict((await self.service.ask("stats", topic=topic))["counts"])


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Debian's browser."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def watched(
    browser: Browser, home: str, *, cookie: Mapping[str, str] | None = None, **how: Any
) -> AsyncIterator[Watched]:
    """A page of a browser that has nothing kept. `cookie`: the header of a session; `how`: as playwright names it."""
    context: BrowserContext = await browser.new_context(**how)
    if cookie:
        name, _, value = cookie["Cookie"].partition("=")
        await context.add_cookies([{"name": name, "value": value, "url": home}])
    try:
        yield Watched(await context.new_page(), home)
    finally:
        await context.close()
