"""The parser, and what it leaves to come; names of tubes; priorities and their notes."""

from __future__ import annotations

import itertools

import pytest

from jobqueue.dialect_settings import Beanstalkd
from jobqueue.protocols.beanstalkd import parser
from jobqueue.protocols.beanstalkd.parser import QUIT, REFUSED, STRANGE, Names, Parser, Request, Tubes, is_tube

LEVELS = Beanstalkd().levels

_BAD: Request = (REFUSED, (b"BAD_FORMAT\r\n",))
STREAMS: dict[bytes, list[Request]] = {
    b"reserve\r\ndelete 7\r\n": [("reserve", ()), ("delete", (7,))],
    b"put 1 2 3 4\r\na\r\nb\r\nquit\r\n": [("put", (1, 2, 3, b"a\r\nb")), (QUIT, ())],
    b"put 1 2 3 0\r\n\r\nstats\r\n": [("put", (1, 2, 3, b"")), ("stats", ())],
    b"put 1 2 3 11\r\n0123456789a\r\nuse a\r\n": [(REFUSED, (b"JOB_TOO_BIG\r\n",)), ("use", ("a",))],
    b"put 1 2 3 2\r\nabcd\r\n": [(REFUSED, (b"EXPECTED_CRLF\r\n",)), (REFUSED, (b"UNKNOWN_COMMAND\r\n",))],
    b"stats\r\n" + b"x" * 223 + b"\r\nstats\r\n": [("stats", ()), _BAD, ("stats", ())],
    b"stats\r\n" + b"x" * 5000 + b"\r\nstats\r\n": [("stats", ()), _BAD, ("stats", ())],
    b"x" * 223 + b"\r\nuse a\r\n": [(STRANGE, (b"BAD_FORMAT\r\n",))],
    b"\0\1x\r\nuse a\r\n": [(STRANGE, (b"BAD_FORMAT\r\n",))],
    b"stats\r\n\0\1x\r\nstats\r\n": [("stats", ()), _BAD, ("stats", ())],
    b"x" * 222 + b"\r\nuse a\r\n": [(STRANGE, (b"UNKNOWN_COMMAND\r\n",))],
    b"use -\r\nuse a\r\n": [_BAD, ("use", ("a",))],
    b"put 1 2 3 x\r\nuse a\r\n": [_BAD, ("use", ("a",))],
    b"use a\r\nx\r\r\nuse b\r\n": [("use", ("a",)), (REFUSED, (b"UNKNOWN_COMMAND\r\n",)), ("use", ("b",))],
    b"release 1 2 3\r\nbury 1 2\r\n": [("release", (1, 2, 3)), ("bury", (1, 2))],
    b"pause-tube a 5\r\nstats-tube a\r\n": [("pause-tube", ("a", 5)), ("stats-tube", ("a",))],
    b"pause-tube a 4294967295\r\n": [("pause-tube", ("a", 315_360_000))],
    b"GET / HTTP/1.0\r\n": [(QUIT, ())],
    b"\x16\x03\x01\x02\x00" + b"x" * 300 + b"\r\nuse a\r\n": [(QUIT, ())],
    b"\x16\x03\x01\r\nuse a\r\n": [(QUIT, ())],
    b"use a\r\n\x16\x03\x01\r\nuse b\r\n": [("use", ("a",)), (REFUSED, (b"UNKNOWN_COMMAND\r\n",)), ("use", ("b",))],
    b"GET /" + b"x" * 300 + b" HTTP/1.1\r\n": [(QUIT, ())],
}


def requests(stream: bytes, piece: int) -> list[Request]:
    """What a parser makes of a stream that comes in pieces."""
    parser, received, found = Parser(), bytearray(), []
    for at in range(0, len(stream), piece):
        received += stream[at : at + piece]
        while received and (request := parser.take(received, 10)) is not None:
            found.append(request)
    return found


def test_requests_are_the_same_however_their_bytes_come(subtests: pytest.Subtests) -> None:
    for piece, stream in itertools.product((1, 2, 3, 7, 10_000), STREAMS):
        with subtests.test(piece=piece, stream=stream):
            assert requests(stream, piece)[: len(STREAMS[stream])] == STREAMS[stream]


@pytest.mark.parametrize("part", [b"put 1 0 60 5\r\n", b"put 1 0 60 50\r\nabc", b"x" * 300, b"dele"])
def test_a_part_of_a_command_is_known_as_one_and_takes_little_room(part: bytes) -> None:
    parser, received = Parser(), bytearray(part)
    assert parser.take(received, 10) is None
    assert received or parser.is_amid
    assert len(received) < 224


def test_between_commands_nothing_is_to_come() -> None:
    parser, received = Parser(), bytearray(b"put 1 0 60 50\r\n" + b"x" * 50 + b"\r\n")
    assert parser.take(received, 10) is not None
    assert not received and not parser.is_amid


def test_a_long_line_is_dropped_as_it_comes() -> None:
    parser, received = Parser(), bytearray()
    for _ in range(100):
        received += b"x" * 1000
        assert parser.take(received, 10) is None
        assert len(received) < 224


def test_names_of_tubes_are_those_of_their_topics_escaped_behind_the_prefix() -> None:
    names = Names("b.")
    assert names.topic("a;$()/+-_.Z9") == "b.a%3B%24%28%29/+-_.Z9"
    assert names.tube("b.a%3B%24%28%29/+-_.Z9") == "a;$()/+-_.Z9"
    assert names.tube("b.%E8%AE%A2") == "订"
    assert names.topic(";" * 200) is None
    assert names.within == "b.*" and Names("").within == ""


@pytest.mark.parametrize("name", ["%0A", "a%22", "%5C", "%7F"])
def test_a_topic_that_would_break_a_document_stays_escaped(name: str) -> None:
    assert Names("").tube(name) == name


def test_other_names_are_not_those_of_tubes(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [b"", b"-a", b"a b", b"a" * 201, b"a%", "é".encode(), b"a\0", b"a:b"]
    for name in cases:
        with subtests.test(name=name):
            assert not is_tube(name)


def test_tubes_that_nobody_uses_are_forgotten() -> None:
    tubes = Tubes()
    tubes.use("a")
    tubes.watch("a")
    for topic in ("a", "b"):
        tubes.count(tubes.deletes, topic)
    assert set(tubes) == {"a"} and dict(tubes.deletes) == {"a": 1}
    tubes.unuse("a")
    assert "a" in tubes
    tubes.ignore("a")
    assert not any((*tubes, tubes.deletes, tubes.using, tubes.watching))


def test_priorities_have_levels_and_come_back_exactly(subtests: pytest.Subtests) -> None:
    cases: list[tuple[int, int]] = [
        *((0, 9), (1, 8), (2, 7), (9, 7), (10, 6), (100, 5), (1023, 5), (1024, 4), (65535, 4), (65536, 3)),
        *((2**20, 2), (2**31 - 1, 2), (2**31, 1), (2**32 - 2, 1), (2**32 - 1, 0)),
    ]
    for priority, level in cases:
        with subtests.test(priority=priority, level=level):
            assert parser.level(LEVELS, priority) == level
            for delay in (0, 315_360_000):
                note = parser.written(LEVELS, level, priority, delay)
                assert parser.read(LEVELS, level, note) == (priority, delay)


def test_the_first_priority_of_a_level_needs_no_note(subtests: pytest.Subtests) -> None:
    cases: list[int] = [0, 1, 2, 10, 100, 1024, 65536, 1048576, 2147483648, 4294967295]
    for priority in cases:
        with subtests.test(priority=priority):
            level = parser.level(LEVELS, priority)
            assert parser.written(LEVELS, level, priority, 0) == b""
            assert parser.first(LEVELS, level) == priority


def test_the_notes_of_other_dialects_are_kept_and_mean_nothing_here() -> None:
    assert parser.is_foreign(b"12345678") and not parser.is_foreign(b"")
    assert not parser.is_foreign(parser.written(LEVELS, 4, 2000, 0))
    assert parser.read(LEVELS, 4, b"12345678") == (1024, 0)
