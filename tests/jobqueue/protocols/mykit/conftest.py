"""A service that speaks mykit-delay's protocol, and clients that send what Java's send."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.jobqueue.protocols.served import Connection, Response, Served

_TABLE = """
[protocols.mykit]
port = PORT
prefix = "m."
clear_all = true

[topics."m.full"]
max_pending = 1
"""
_NUMBERS = itertools.count(1)

REST_TEMPLATE = (
    "Accept: text/plain, application/json, application/*+json, */*\nContent-Type: application/json\n"
    "User-Agent: Java/1.8.0_292\nHost: 127.0.0.1:6355\nConnection: keep-alive"
)
"""What Spring's RestTemplate sends with a map."""
HTTP_CLIENT = (
    "Content-Type: application/json; charset=UTF-8\nHost: 127.0.0.1:6355\nConnection: Keep-Alive\n"
    "User-Agent: Apache-HttpClient/4.5.3 (Java/1.8.0_292)\nAccept-Encoding: gzip,deflate"
)
"""What Apache's HttpClient sends with a StringEntity."""
_GET = "Accept: text/plain, */*\nUser-Agent: Java/1.8.0_292\nHost: 127.0.0.1:6355\nConnection: keep-alive"


class JavaClient:
    """A program that uses RestTemplate."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def push(self, **members: Any) -> Any:
        """The wrapper that a push gets."""
        response = self.post(json.dumps(members).encode())
        assert response.status == 200, response
        return response.json

    def post(self, body: bytes, headers: str = REST_TEMPLATE) -> Response:
        return self.connection.ask("POST /push", headers, body)

    def get(self, path: str, **query: str) -> Response:
        return self.connection.ask(f"GET {path}" + (f"?{urlencode(query)}" if query else ""), _GET)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(_TABLE).running() as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[JavaClient]:
    with served.connect() as connection:
        yield JavaClient(connection)


@pytest.fixture
def topic() -> str:
    """One that no other test uses."""
    return f"t-{next(_NUMBERS)}"
