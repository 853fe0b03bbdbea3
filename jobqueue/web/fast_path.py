"""The fast path: reads the head of a simple request without a parser, and writes the answer to one.

A simple request is a POST to the native protocol's path with a `Content-Length`, as nearly all requests are. The form
is much narrower than HTTP and lies wholly within what aiohttp's parser accepts: a simple head means the same to both
parsers, down to the byte at which its request ends. A request that is not simple is not refused: it goes to aiohttp. So
`read` returns None in any case of doubt.
"""

from __future__ import annotations

import functools
import re
import time
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

from jobqueue.access.authentication import credential
from jobqueue.access.grants import HEADER as ACTOR
from jobqueue.errors import BAD_HTTP_STATUS, STATUS
from jobqueue.protocols import Reply
from jobqueue.protocols.command.protocol import CommandProtocol
from jobqueue.tracing import HEADER, traceparent

SERVER = "jobqueue"  # the `Server` header: no versions, which would help only attackers
LONGEST_HEAD = 4096  # bytes; below all limits of aiohttp
_MOST_FIELDS = 64  # aiohttp accepts 128
_FIRST = f"POST {CommandProtocol.path} HTTP/1.1\r\n".encode()
_FIELD = rb"[A-Za-z0-9-]{1,64}: [!-~](?:[ -~]*[!-~])?\r\n"
_HEAD = re.compile(re.escape(_FIRST) + rb"((?:" + _FIELD + rb")+)\r\n")
_BEGUN = re.compile(rb"(?:" + _FIELD + rb")*(?:[A-Za-z0-9-]{1,64}(?::(?: (?:[!-~][ -~]*\r?)?)?)?|\r)?")
_LENGTH = re.compile(r"0|[1-9][0-9]{0,14}")

# These headers change how a message ends or what happens to its connection, or browsers send them (answering.py), or
# they name the actor. aiohttp's parser treats `Proxy-Connection` like `Connection`, and refuses the key of an old
# WebSocket.
_NEVER_SIMPLE = frozenset(
    (
        *("transfer-encoding", "content-encoding", "expect", "upgrade", "proxy-connection", "sec-websocket-key1"),
        *("origin", "sec-fetch-site"),
        ACTOR.lower(),
    )
)


class Head(NamedTuple):
    """The head of a simple request."""

    length: int
    """Bytes of the body."""
    request_id: str
    """As the client sent it, or empty if it sent none."""
    credential: bytes
    """The digest of the token in its `Authorization`, or empty if there is none."""
    trace: str = ""
    """Its `traceparent`, or empty if there is no valid one."""


@functools.lru_cache(maxsize=512)  # a client repeats the same head; at most 2 MB in all
def read(head: bytes) -> Head | None:
    """Read a whole head, its blank line included. Returns None if it is not simple."""
    found = _HEAD.fullmatch(head)
    if found is None:
        return None
    lines = [line.split(": ", 1) for line in found[1].decode().split("\r\n")[:-1]]
    fields = {name.lower(): value for name, value in lines}
    if len(fields) < len(lines) or len(lines) > _MOST_FIELDS or not _NEVER_SIMPLE.isdisjoint(fields):
        return None
    if "host" not in fields or fields.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    length = fields.get("content-length", "")
    if not _LENGTH.fullmatch(length):
        return None
    trace = traceparent(fields.get(HEADER))
    return Head(int(length), fields.get("x-request-id", ""), credential(fields.get("authorization", "")), trace)


def begun(part: bytes) -> bool:
    """Whether the received part of a head may become the head of a simple POST."""
    if not part.startswith(_FIRST):
        return _FIRST.startswith(part)
    return len(part) < LONGEST_HEAD and _BEGUN.fullmatch(part, len(_FIRST)) is not None


_BEGINNINGS = {
    status: f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
    for status in {200, *STATUS.values(), *BAD_HTTP_STATUS.values()}
}
UNAUTHORIZED = STATUS["UNAUTHORIZED"]
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="jobqueue"'}
"""The headers of answers with the status `UNAUTHORIZED`."""
_BEGINNINGS[UNAUTHORIZED] += "".join(f"{name}: {value}\r\n" for name, value in CHALLENGE.items())


@functools.lru_cache(maxsize=1)
def _end(second: int) -> str:
    """The end of a head, after the length. `second`: the Unix time at which the head is written."""
    return f"\r\nDate: {formatdate(second, usegmt=True)}\r\nServer: {SERVER}\r\n"


def answered(body: bytes, request_id: str) -> bytes:
    """A success as aiohttp would write it: the same as `written` for most answers, with less work."""
    head = f"{_BEGINNINGS[200]}X-Request-Id: {request_id}\r\nContent-Length: {len(body)}{_end(int(time.time()))}\r\n"
    return head.encode() + body


def written(reply: Reply, request_id: str, *, last: bool) -> bytes:
    """A reply as aiohttp would write it. `last`: True if the connection is closed after it."""
    head = _BEGINNINGS[reply.status]
    if request_id:
        head += f"X-Request-Id: {request_id}\r\n"
    if reply.retry_after is not None:
        head += f"Retry-After: {reply.retry_after}\r\n"
    head += f"Content-Length: {len(reply.body)}{_end(int(time.time()))}"
    return (head + ("Connection: close\r\n\r\n" if last else "\r\n")).encode() + reply.body
