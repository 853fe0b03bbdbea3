"""The answers of beanstalkd's protocol."""

from __future__ import annotations

from jobqueue.commands.answers import Answer

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
"""The connection is closed instead."""

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
    return _OF_CODES.get(answer["code"], INTERNAL_ERROR)


def job(word: bytes, number: int, data: bytes) -> bytes:
    """A job: RESERVED or FOUND."""
    return b"%b %d %d\r\n%b\r\n" % (word, number, len(data), data)


def document(text: str) -> bytes:
    """A document in YAML, without its first line."""
    data = f"---\n{text}".encode()
    return b"OK %d\r\n%b\r\n" % (len(data), data)
