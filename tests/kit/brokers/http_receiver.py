"""A receiver of posts, in a process of its own. It writes each to a file before it answers."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import aiohttp

from tests.kit.brokers import Broker, Received
from tests.kit.ports import free_port

_MOST = 1 << 20


class HttpReceiver(Broker):
    kind = "http"

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()
        self._file = self.folder / "received"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.kit.brokers.http_receiver", str(self.port), str(self._file)]

    async def answers(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}/") as response:
                return response.status == 405
        except aiohttp.ClientError:
            return False

    async def prepare(self, topics: list[str]) -> None:
        """There is nothing to make."""

    def table(self) -> dict[str, Any]:
        return {"kind": "http", "url": f"http://127.0.0.1:{self.port}/jobs", "networks": ["127.0.0.0/8"]}

    async def received(self) -> list[Received]:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        found = [json.loads(line) for line in lines]
        return [Received(each["headers"]["jobqueue-key"], each["headers"], _bytes(each)) for each in found]


def _bytes(told: dict[str, Any]) -> bytes:
    return base64.b64decode(told["body"])


def main(port: int, file: str) -> None:
    """Answer 204 to posts; to those to /status/N, N."""
    from aiohttp import web  # noqa: PLC0415

    async def note(request: web.Request) -> web.Response:
        body = base64.b64encode(await request.read()).decode()
        headers = {name.lower(): value for name, value in request.headers.items()}
        with open(file, "a") as written:  # noqa: ASYNC230, PTH123 - this process does nothing else
            written.write(json.dumps({"headers": headers, "body": body}) + "\n")
        return web.Response(status=204)

    async def refuse(request: web.Request) -> web.Response:
        pause = {"Retry-After": request.query["after"]} if "after" in request.query else {}
        return web.Response(status=int(request.match_info["status"]), headers=pause)

    app = web.Application(client_max_size=_MOST)
    app.router.add_post("/", note)
    app.router.add_post("/jobs", note)
    app.router.add_post("/status/{status}", refuse)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
