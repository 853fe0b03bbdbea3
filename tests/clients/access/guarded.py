"""A small HTTP server that lets in whom a test lets in."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Reply = tuple[int, Any]
UNAUTHORIZED = (401, {"success": False, "id": None, "code": "UNAUTHORIZED", "error": "a valid token is needed"})
DONE = (200, {"success": True, "topic": None})


class Seen(NamedTuple):
    """A request as it came."""

    authorization: str | None
    commands: Any


class Guarded:
    """Its replies come from `reply(authorization, what was asked)`, which a test may exchange."""

    def __init__(self, reply: Callable[[str | None, Any], Reply], tls: ssl.SSLContext | None = None) -> None:
        self.reply = reply
        self.page: Callable[[str | None], Reply] = lambda authorization: (404, "")
        """The reply to a GET."""
        self.seen: list[Seen] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'http' if tls is None else 'https'}://localhost:{self._server.server_port}"

    @property
    def shown(self) -> list[str | None]:
        """The header Authorization of each request."""
        return [each.authorization for each in self.seen]

    @contextmanager
    def serving(self) -> Iterator[Guarded]:
        """Serve in a thread."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield self
        self._server.shutdown()
        self._server.server_close()
        thread.join()


def _handler_of(guarded: Guarded) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            guarded.seen.append(Seen(self.headers.get("Authorization"), asked))
            self._answer(*guarded.reply(self.headers.get("Authorization"), asked))

        def do_GET(self) -> None:
            guarded.seen.append(Seen(self.headers.get("Authorization"), None))
            self._answer(*guarded.page(self.headers.get("Authorization")))

        def _answer(self, status: int, answer: Any) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *about: object) -> None:
            """Nothing: the test looks at `seen`."""

    return Handler


def accepts(token: str) -> Callable[[str | None, Any], Reply]:
    """The replies of a service that knows only this token."""

    def reply(authorization: str | None, asked: Any) -> Reply:
        return DONE if authorization == f"Bearer {token}" else UNAUTHORIZED

    return reply
