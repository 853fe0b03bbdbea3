"""The parser of a connection, which turns the bytes of a client into requests as beanstalkd itself reads them; and the
words of the protocol: answers, tubes, priorities.

A request is the name of a command and its arguments, checked for form. A command that cannot be read becomes a
`REFUSED` request with its answer; the bytes after it are read as the next command. Only a first line that is not a
command is `STRANGE`: it comes from a program that speaks another protocol, perhaps a browser at the request of a web
page, and nothing after it is read.

beanstalkd has 2^32 priorities, of which the smallest comes first. They are mapped to our ten levels, and the note of a
job keeps the exact priority and the last delay. A job has no note if its priority is the smallest of its level and its
last delay was 0.
"""

from __future__ import annotations

import functools
import re
import string
import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jobqueue.commands.answers import Answer
from jobqueue.schema.fields import TEN_YEARS_S
from jobqueue.wires import parameters

BAD_FORMAT = b"BAD_FORMAT\r\n"
BURIED = b"BURIED\r\n"
DEADLINE_SOON = b"DEADLINE_SOON\r\n"
DELETED = b"DELETED\r\n"
DRAINING = b"DRAINING\r\n"
EXPECTED_CRLF = b"EXPECTED_CRLF\r\n"
INTERNAL_ERROR = b"INTERNAL_ERROR\r\n"
JOB_TOO_BIG = b"JOB_TOO_BIG\r\n"
KICKED_ONE = b"KICKED\r\n"
NOT_FOUND = b"NOT_FOUND\r\n"
NOT_IGNORED = b"NOT_IGNORED\r\n"
OUT_OF_MEMORY = b"OUT_OF_MEMORY\r\n"
PAUSED = b"PAUSED\r\n"
RELEASED = b"RELEASED\r\n"
TIMED_OUT = b"TIMED_OUT\r\n"
TOUCHED = b"TOUCHED\r\n"
UNKNOWN_COMMAND = b"UNKNOWN_COMMAND\r\n"
NOTHING = b""
"""No answer: the connection is closed instead."""

_OF_CODES = {
    "TOPIC_FULL": OUT_OF_MEMORY,
    "NO_ROOM": OUT_OF_MEMORY,
    "TOO_LARGE": JOB_TOO_BIG,
    "NOT_FOUND": NOT_FOUND,
    "RESERVED": NOT_FOUND,
    "NOT_RESERVED": NOT_FOUND,
    "STALE_LEASE": NOT_FOUND,
    "TOO_LATE": NOT_FOUND,
    "WRONG_STATE": NOT_FOUND,
    "SHUTTING_DOWN": DRAINING,
}


def of_failure(answer: Answer) -> bytes:
    """The answer to a command that was refused."""
    return of_error(answer["code"])


def of_error(code: str) -> bytes:
    """The answer to a command that was refused with this code."""
    return _OF_CODES.get(code, INTERNAL_ERROR)


def job(word: bytes, number: int, data: bytes) -> bytes:
    """An answer with a job. `word`: RESERVED or FOUND."""
    return b"%b %d %d\r\n%b\r\n" % (word, number, len(data), data)


def document(text: str) -> bytes:
    """An answer with a YAML document. `text`: the document without its first line."""
    data = f"---\n{text}".encode()
    return b"OK %d\r\n%b\r\n" % (len(data), data)


DEFAULT = "default"
MOST_WATCHED = 100

_LONGEST = 200
_CHARACTERS = (string.ascii_letters + string.digits + "-+/;.$_()").encode()
_UNFIT = re.compile(r'[\x00-\x1f\x7f"\\]')  # characters that would break a line, or the quotes around a name


def is_tube(name: bytes) -> bool:
    """Whether `name` is a valid name of a tube."""
    return 0 < len(name) <= _LONGEST and not name.startswith(b"-") and not name.translate(None, _CHARACTERS)


class Names:
    """Converts between the names of tubes and of their topics."""

    __slots__ = ("_prefix",)

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    @property
    def within(self) -> str:
        """The pattern of the dialect's topics, for `within` of commands; an empty string allows any topic."""
        return f"{self._prefix}*" if self._prefix else ""

    @property
    def prefix(self) -> str:
        """The prefix of the dialect's topics."""
        return self._prefix

    def topic(self, tube: str) -> str | None:
        """The topic of a tube, or None if its name would be too long."""
        topic = self._prefix + parameters.escaped(tube)
        return topic if parameters.fits(topic) else None

    def tube(self, topic: str) -> str:
        """The tube of a topic. A name that would break a line, or the quotes around it, stays escaped."""
        name = topic.removeprefix(self._prefix)
        plain = parameters.plain(name)
        return name if _UNFIT.search(plain) else plain


class Tubes:
    """What the connections of this process do with their tubes, by topic."""

    def __init__(self) -> None:
        self.using: Counter[str] = Counter()
        self.watching: Counter[str] = Counter()
        self.deletes: Counter[str] = Counter()
        """How many jobs were deleted; only for tubes that a connection of this process uses or watches."""
        self.pauses: Counter[str] = Counter()
        self._known: dict[str, str] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self.using or topic in self.watching

    def __iter__(self) -> Iterator[str]:
        return iter(self.using | self.watching)

    def shared(self, topic: str) -> str:
        """One string object that all connections which use or watch a topic share."""
        return self._known.setdefault(topic, topic)

    def use(self, topic: str) -> str:
        """A connection begins to use a topic."""
        self.using[topic] += 1
        return self.shared(topic)

    def watch(self, topic: str) -> str:
        """A connection begins to watch a topic."""
        self.watching[topic] += 1
        return self.shared(topic)

    def unuse(self, topic: str) -> None:
        """A connection stops using a topic."""
        self._end(self.using, topic)

    def ignore(self, topic: str) -> None:
        """A connection stops watching a topic."""
        self._end(self.watching, topic)

    def count(self, counter: Counter[str], topic: str) -> None:
        """Count an operation on a tube, unless no connection of this process uses or watches it."""
        if topic in self:
            counter[topic] += 1

    def _end(self, counter: Counter[str], topic: str) -> None:
        counter[topic] -= 1
        if not counter[topic]:
            del counter[topic]
        if topic not in self:
            for each in (self.deletes, self.pauses, self._known):
                each.pop(topic, None)


LONGEST_LINE = 224  # bytes, with its end
REFUSED = "refused"
STRANGE = "strange"
QUIT = "quit"
PUT = "put"

Request = tuple[str, tuple[Any, ...]]

_END = b"\r\n"
_U32 = 2**32 - 1
_U64 = 2**64 - 1
_U64_DIGITS = 20
_HTTP = b" HTTP/1."
_TLS = b"\x16\x03"  # how a handshake begins
_TAIL = len(_HTTP) + 2  # bytes kept of a line that is too long: also a digit and half of the line's end


class Parser:
    """Parses the bytes of one connection. Between two calls it may be in the middle of a command."""

    __slots__ = ("_is_cutting", "_is_first", "_put", "_skip")

    def __init__(self) -> None:
        self._is_first = True  # no line has ended yet
        self._is_cutting = False  # within a line that is too long
        self._put: tuple[int, int, int, int] | None = None  # the arguments of a put whose data has not come yet
        self._skip = 0  # bytes still to come of data that is too big

    @property
    def is_amid(self) -> bool:
        """Whether the parser is in the middle of a command."""
        return self._put is not None or self._skip > 0 or self._is_cutting

    def take(self, received: bytearray, most_bytes: int) -> Request | None:
        """The first request, or None if it is incomplete; its bytes are removed from `received`. `most_bytes`: the most
        bytes that a job's data may have."""
        if self._put is not None:
            return self._data(received, *self._put)
        if self._skip:
            return self._skipped(received)
        return self._line(received, most_bytes)

    def _line(self, received: bytearray, most_bytes: int) -> Request | None:
        if self._is_first and received.startswith(_TLS) and not self._is_cutting:
            received.clear()
            return QUIT, ()  # also a browser: a hostile server may have chosen the session bytes that it sends
        end = -1 if self._is_cutting else received.find(_END, 0, LONGEST_LINE)
        if end < 0:
            self._is_cutting |= len(received) >= LONGEST_LINE
            end = received.find(_END) if self._is_cutting else -1
        if end < 0:
            if self._is_cutting:
                del received[:-_TAIL]
            return None
        line = bytes(received[:end])
        del received[: end + 2]
        is_first = self._is_first
        if is_first or self._is_cutting:
            self._is_first = False
            was_cut, self._is_cutting = self._is_cutting, False
            if is_first and line[:-1].endswith(_HTTP):
                return QUIT, ()  # a browser, which a web page can make send commands after the head
            if was_cut or b"\0" in line:
                return STRANGE if is_first else REFUSED, (BAD_FORMAT,)
        word, space, rest = line.partition(b" ")
        is_put = word == b"put" and space
        request = self._begin_put(received, rest, most_bytes) if is_put else _read(line, word, rest if space else None)
        return (STRANGE, request[1]) if is_first and request == _UNKNOWN else request

    def _begin_put(self, received: bytearray, rest: bytes, most_bytes: int) -> Request | None:
        numbers = _of_put(rest)
        if numbers is None:
            return _refused(BAD_FORMAT)  # beanstalkd, too, reads the data that follows as commands
        priority, delay, ttr, size = numbers
        if size > most_bytes:
            self._skip = size + 2
            return self._skipped(received)
        return self._data(received, priority, delay, ttr, size)

    def _data(self, received: bytearray, priority: int, delay: int, ttr: int, size: int) -> Request | None:
        """The put whose line was read, or None until all of its data has come."""
        if len(received) < size + 2:
            self._put = priority, delay, ttr, size
            return None
        self._put = None
        data, end = bytes(received[:size]), received[size : size + 2]
        del received[: size + 2]
        return (PUT, (priority, delay, ttr, data)) if end == _END else _refused(EXPECTED_CRLF)

    def _skipped(self, received: bytearray) -> Request | None:
        taken = min(self._skip, len(received))
        self._skip -= taken
        del received[:taken]
        return None if self._skip else _refused(JOB_TOO_BIG)


def _refused(answer: bytes) -> Request:
    return REFUSED, (answer,)


def _read(line: bytes, word: bytes, rest: bytes | None) -> Request:
    """The request of a line other than put. `rest`: the part after the first space, or None if there is no space."""
    known = _TAKING.get(word) if rest is not None else None
    if known:
        name, read = known
        arguments = read(rest or b"")
        return _refused(BAD_FORMAT) if arguments is None else (name, arguments)
    if rest is None and word in _PLAIN:
        return _PLAIN[word]
    if line.startswith(b"quit"):
        return QUIT, ()
    return _refused(BAD_FORMAT if b"\0" in line or line.startswith(_BEGINNINGS) else UNKNOWN_COMMAND)


_UNKNOWN = _refused(UNKNOWN_COMMAND)


def _numbers(text: bytes, count: int, most: int) -> list[int] | None:
    """Exactly `count` numbers up to `most`, with spaces before and between them; None for anything else."""
    words = text.split(b" ")
    if len(words) != count:
        words = [word for word in words[:-1] if word] + words[-1:]
    if len(words) != count:
        return None
    numbers = [int(word) for word in words if word.isdigit()]
    return numbers if len(numbers) == count and max(numbers) <= most else None


@functools.lru_cache(maxsize=512)  # a client repeats the same line
def _of_put(text: bytes) -> tuple[int, int, int, int] | None:
    """Priority, delay, ttr and size."""
    numbers = _numbers(text, 4, _U32)
    return (numbers[0], min(numbers[1], TEN_YEARS_S), numbers[2], numbers[3]) if numbers else None


def _number(text: bytes) -> tuple[int] | None:
    if text.isdigit() and len(text) < _U64_DIGITS:
        return (int(text),)
    found = _numbers(text, 1, _U64)
    return (found[0],) if found else None


def _id_and_priority(text: bytes) -> tuple[int, int] | None:
    found = _numbers(text, 2, _U64)
    return (found[0], found[1]) if found and found[1] <= _U32 else None


def _id_priority_and_delay(text: bytes) -> tuple[int, int, int] | None:
    found = _numbers(text, 3, _U64)
    if found is None or found[1] > _U32 or found[2] > _U32:
        return None
    return found[0], found[1], min(found[2], TEN_YEARS_S)


def _tube(text: bytes) -> tuple[str] | None:
    return (text.decode(),) if is_tube(text) else None


def _tube_and_seconds(text: bytes) -> tuple[str, int] | None:
    name, _, rest = text.lstrip(b" ").partition(b" ")
    found = _numbers(rest, 1, _U32)
    return (name.decode(), min(found[0], TEN_YEARS_S)) if found and is_tube(name) else None


_TAKING: dict[bytes, tuple[str, Callable[[bytes], tuple[Any, ...] | None]]] = {
    b"use": ("use", _tube),
    b"watch": ("watch", _tube),
    b"ignore": ("ignore", _tube),
    b"reserve-with-timeout": ("reserve-with-timeout", _number),
    b"reserve-job": ("reserve-job", _number),
    b"delete": ("delete", _number),
    b"release": ("release", _id_priority_and_delay),
    b"bury": ("bury", _id_and_priority),
    b"touch": ("touch", _number),
    b"kick": ("kick", _number),
    b"kick-job": ("kick-job", _number),
    b"peek": ("peek", _number),
    b"pause-tube": ("pause-tube", _tube_and_seconds),
    b"stats-job": ("stats-job", _number),
    b"stats-tube": ("stats-tube", _tube),
}
"""The commands with arguments, and the functions that read the arguments."""

_WORDS = (
    *("reserve", "peek-ready", "peek-delayed", "peek-buried", "stats", QUIT),
    *("list-tubes", "list-tube-used", "list-tubes-watched"),
)
_PLAIN: dict[bytes, Request] = {word.encode(): (word, ()) for word in _WORDS}
"""The commands without arguments."""
_BEGINNINGS = (*_PLAIN, b"pause-tube")
"""A line that begins with one of these is a command that cannot be read, not an unknown command."""


_NOTE = struct.Struct(">cII")
_MARK = b"b"  # other dialects have notes of their own
_HIGHEST = 9


def level(levels: Sequence[int], priority: int) -> int:
    """The level of a priority. `levels`: the upper ends of the levels 9 to 1."""
    return _HIGHEST - bisect_left(levels, priority)


def first(levels: Sequence[int], level: int) -> int:
    """The smallest priority of a level."""
    return levels[_HIGHEST - level - 1] + 1 if level < _HIGHEST else 0


def written(levels: Sequence[int], level: int, priority: int, delay: int) -> bytes:
    """The note of a job; empty if the job needs none."""
    if not delay and priority == first(levels, level):
        return b""
    return _NOTE.pack(_MARK, priority, delay)


def is_foreign(note: bytes) -> bool:
    """Whether a note belongs to another dialect and must stay."""
    return bool(note) and not _is_own(note)


def read(levels: Sequence[int], level: int, note: bytes) -> tuple[int, int]:
    """The last priority and delay of a job, from its level and note."""
    if not _is_own(note):
        return first(levels, level), 0
    _, priority, delay = _NOTE.unpack(note)
    return priority, delay


def _is_own(note: bytes) -> bool:
    return len(note) == _NOTE.size and note.startswith(_MARK)
