"""The plain request, read without a parser: `POST /command` with a `Content-Length`, as nearly all are.

The form is much narrower than HTTP, and lies wholly within what aiohttp's parser takes: whatever is plain here means
the same there, down to the byte at which it ends. What is not plain is not bad: aiohttp reads it. So a doubt is always
settled by None.
"""

from __future__ import annotations

import functools
import re
from http import HTTPStatus
from typing import NamedTuple

from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import SERVER_SOFTWARE

from jobqueue.errors import STATUS
from jobqueue.protocols.command.handler import Reply

LONGEST_HEAD = 4096  # bytes; below all bounds of aiohttp's
_MOST_FIELDS = 64  # aiohttp takes 128
_FIRST = b"POST /command HTTP/1.1\r\n"
_FIELD = rb"[A-Za-z0-9-]{1,64}: [!-~](?:[ -~]*[!-~])?\r\n"
_HEAD = re.compile(rb"(POST /command|GET /[!-~]*) HTTP/1\.1\r\n((?:" + _FIELD + rb")+)\r\n")
_BEGUN = re.compile(rb"(?:" + _FIELD + rb")*(?:[A-Za-z0-9-]{1,64}(?::(?: (?:[!-~][ -~]*\r?)?)?)?|\r)?")
_LENGTH = re.compile(r"0|[1-9][0-9]{0,14}")

# They change how a message ends or what becomes of its connection. `Proxy-Connection` counts as `Connection` in
# aiohttp's parser, and it refuses the key of a WebSocket of old.
_NEVER_PLAIN = frozenset(
    ("transfer-encoding", "content-encoding", "expect", "upgrade", "proxy-connection", "sec-websocket-key1")
)


class Head(NamedTuple):
    """What a plain head says."""

    length: int | None
    """Bytes of the body of a command; None: a GET, which has none."""
    request_id: str
    """As the client gave it; else empty."""


@functools.lru_cache(maxsize=512)  # a client sends the same head again and again: at most 2 MB in all
def read(head: bytes) -> Head | None:
    """What a whole head says, its blank line included; None where it is not plain."""
    found = _HEAD.fullmatch(head)
    if found is None:
        return None
    lines = [line.split(": ", 1) for line in found[2].decode().split("\r\n")[:-1]]
    fields = {name.lower(): value for name, value in lines}
    if len(fields) < len(lines) or len(lines) > _MOST_FIELDS or not _NEVER_PLAIN.isdisjoint(fields):
        return None
    if "host" not in fields or fields.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    length, request_id = fields.get("content-length"), fields.get("x-request-id", "")
    if found[1].startswith(b"GET"):
        return Head(None, request_id) if length is None else None
    return Head(int(length), request_id) if length and _LENGTH.fullmatch(length) else None


def begun(part: bytes) -> bool:
    """Whether what has come of a head may become that of a plain command."""
    if not part.startswith(_FIRST):
        return _FIRST.startswith(part)
    return len(part) < LONGEST_HEAD and _BEGUN.fullmatch(part, len(_FIRST)) is not None


_BEGINNINGS = {
    status: f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
    for status in {200, 408, *STATUS.values()}
}
_END = f"\r\nServer: {SERVER_SOFTWARE}\r\n\r\n"
_LAST_END = f"\r\nServer: {SERVER_SOFTWARE}\r\nConnection: close\r\n\r\n"


def written(reply: Reply, request_id: str, *, last: bool) -> bytes:
    """An answer with its head, as aiohttp writes it. `last`: the connection is closed behind it."""
    head = _BEGINNINGS[reply.status]
    if request_id:
        head += f"X-Request-Id: {request_id}\r\n"
    if reply.retry_after is not None:
        head += f"Retry-After: {reply.retry_after}\r\n"
    end = _LAST_END if last else _END
    head += f"Content-Length: {len(reply.body)}\r\nDate: {rfc822_formatted_time()}{end}"
    return head.encode() + reply.body
