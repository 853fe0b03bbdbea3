"""A cheap generator of load: many conversations over plain sockets, in one thread, on epoll.

A conversation is a Python generator: it yields what to send and how to read the answer, and is sent the answer. That
costs some µs of CPU a request (`cost` measures it), less than a client library takes; the bench says so and subtracts
nothing.
"""

from __future__ import annotations

import re
import select
import socket
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from typing import Any

import hiredis

# Given what arrived so far: the answer, or None when it is not whole yet.
Read = Callable[[bytes], Any]
Conversation = Generator[tuple[bytes, Read], Any, None]

_PIECE = 1 << 18


class SilenceError(Exception):
    """Nobody answered for too long, or the other side hung up."""


def never() -> bool:
    """All conversations go on to their ends."""
    return False


def talk(
    pairs: Iterable[tuple[socket.socket, Conversation]], done: Callable[[], bool] = never, patience_s: float = 60
) -> None:
    """Hold all conversations to their ends, or until `done`. SilenceError when none goes on for so long."""
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
    """The body of a response that has a Content-Length; ValueError when its status is not 200."""
    head = arrived.find(b"\r\n\r\n")
    if head < 0:
        return None
    length = _LENGTH.search(arrived, 0, head)
    if not length or not arrived.startswith(b"HTTP/1.1 200"):
        raise ValueError(arrived[:2000])
    end = head + 4 + int(length[1])
    return arrived[head + 4 : end] if len(arrived) >= end else None


def pack(*parts: str | bytes | float) -> bytes:
    """A command to Redis."""
    return bytes(hiredis.pack_command(parts))  # type: ignore[arg-type]  # its stub knows tuples of one part only


def length(number: int) -> Read:
    """An answer of so many bytes."""
    return lambda arrived: arrived if len(arrived) >= number else None


def replies(number: int) -> Read:
    """So many replies of Redis, parsed; errors among them are raised."""

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
