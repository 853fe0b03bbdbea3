"""A service that speaks lmstfy's protocol, and a client that sends what theirs in Go sends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest

from tests.jobqueue.protocols.served import Connection, Response, Served

_TABLE = """
[protocols.lmstfy]
port = PORT
path = "/theirs"
prefix = "l."
token = "tok"

[virtual_topics]
"l.ns/both" = ["l.ns/left", "l.ns/right"]

[topics."l.ns/full"]
max_pending = 1
"""
_NUMBERS = itertools.count(1)


class GoClient:
    """Sends what the client in Go sends: the parameters in order of their names, these headers in this order."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(
        self, method: str, path: str, body: bytes = b"", attributes: dict[str, str] | None = None, **query: object
    ) -> None:
        target = f"/api/ns/{quote(path, safe='/,~')}"
        if query:
            target += "?" + urlencode(sorted(query.items()))
        marked = {"Enable-Job-Version": "YES"} if attributes else {}
        marked |= {f"Job-Attr-{name.title()}": value for name, value in (attributes or {}).items()}
        headers = {"Host": "127.0.0.1:7777", "User-Agent": "Go-http-client/1.1", **marked}
        headers |= {"X-Token": "tok", "Accept-Encoding": "gzip"}
        if method == "PUT" and not body:
            headers["Content-Length"] = "0"
        self.connection.send(f"{method} {target}", "\n".join(map(": ".join, headers.items())), body)

    def ask(
        self, method: str, path: str, body: bytes = b"", attributes: dict[str, str] | None = None, **query: object
    ) -> Response:
        self.send(method, path, body, attributes, **query)
        return self.connection.receive()

    def publish(self, queue: str, data: bytes, ttl: int = 0, tries: int = 1, delay: int = 0) -> str:
        """The id of a new job."""
        response = self.ask("PUT", queue, data, ttl=ttl, tries=tries, delay=delay)
        assert response.status == 201, response
        job_id: str = response.json["job_id"]
        return job_id

    def consume(self, queue: str, ttr: int = 60, timeout: int = 0) -> Response:
        return self.ask("GET", queue, ttr=ttr, timeout=timeout, freeze_tries="false")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(_TABLE).running() as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[GoClient]:
    connection = served.connect()
    yield GoClient(connection)
    connection.close()


@pytest.fixture
def queue() -> str:
    """One that no other test uses."""
    return f"q-{next(_NUMBERS)}"
