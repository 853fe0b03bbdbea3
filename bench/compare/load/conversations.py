"""Many conversations over plain sockets, in one thread, on epoll, for consumers that mostly wait.

A conversation is a Python generator: it yields what to send and how to read the answer, and is then sent the answer.
"""

from __future__ import annotations

import re
import select
import socket
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from typing import Any

import hiredis

# Takes what has arrived so far. Returns the answer, or None while it is incomplete.
Read = Callable[[bytes], Any]
Conversation = Generator[tuple[bytes, Read], Any, None]

_PIECE = 1 << 18


def connect(address: str) -> socket.socket:
    """A connection to a port of this machine, or to the path of a Unix socket."""
    if address.startswith("/"):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
    else:
        connection = socket.create_connection(("127.0.0.1", int(address)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class SilenceError(Exception):
    """No answer for too long, or the other side hung up."""


def talk(pairs: Iterable[tuple[socket.socket, Conversation]], done: Callable[[], bool], patience_s: float = 60) -> None:
    """Run all conversations to their ends, or until `done`. Raises SilenceError if none makes progress for too long."""
    poll = select.epoll()
    open_ones: dict[int, tuple[socket.socket, Conversation, Read]] = {}
    for connection, conversation in pairs:
        with suppress(StopIteration):
            question, read = next(conversation)
            connection.sendall(question)
            open_ones[connection.fileno()] = (connection, conversation, read)
            poll.register(connection, select.EPOLLIN)
    parts: dict[int, bytes] = {}
    try:
        while open_ones and not done():
            ready = poll.poll(patience_s)
            if not ready:
                raise SilenceError(f"{len(open_ones)} conversations without an answer for {patience_s} s")
            for number, _ in ready:
                connection, conversation, read = open_ones[number]
                arrived = connection.recv(_PIECE)
                if not arrived:
                    raise SilenceError("the other side hung up")
                if number in parts:
                    arrived = parts.pop(number) + arrived
                answer = read(arrived)
                if answer is None:
                    parts[number] = arrived
                    continue
                try:
                    question, read = conversation.send(answer)
                except StopIteration:
                    poll.unregister(number)
                    del open_ones[number]
                    continue
                connection.sendall(question)
                open_ones[number] = (connection, conversation, read)
    finally:
        poll.close()


_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def http(arrived: bytes) -> bytes | None:
    """The body of a response with a Content-Length. Raises ValueError unless its status is 200."""
    head = arrived.find(b"\r\n\r\n")
    if head < 0:
        return None
    length = _LENGTH.search(arrived, 0, head)
    if not length or not arrived.startswith(b"HTTP/1.1 200"):
        raise ValueError(arrived[:2000])
    end = head + 4 + int(length[1])
    return arrived[head + 4 : end] if len(arrived) >= end else None


def pack(*parts: str | bytes | float) -> bytes:
    """A Redis command as bytes."""
    return bytes(hiredis.pack_command(parts))  # type: ignore[arg-type]  # its stub knows tuples of one part only


def replies(number: int) -> Read:
    """Reads this many replies of Redis, parsed; raises any error among them."""

    def read(arrived: bytes) -> list[Any] | None:
        reader = hiredis.Reader()
        reader.feed(arrived)
        found = []
        for _ in range(number):
            reply = reader.gets()
            if reply is False:
                return None
            if isinstance(reply, hiredis.HiredisError):
                raise reply
            found.append(reply)
        return found

    return read
