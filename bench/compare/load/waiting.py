"""Consumers that wait for one job after another, as conversations, by the name of the protocol."""

from __future__ import annotations

import re
from collections.abc import Callable

from bench.compare import BODY
from bench.compare.load.conversations import Conversation, http, pack, replies

TOPIC = "bench"
Take = Callable[[object], None]  # is called with each job that arrives

_WAIT_S = 30
_HEAD = b"POST /command HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
_POP = f'{{"command":"pop","topic":"{TOPIC}","wait":{_WAIT_S}}}'
_JOB = re.compile(rb'"id":"([^"]+)","value".*?"lease":(\d+)')
_ANSWER = re.compile(rb"RESERVED (\d+) 100\r\n(.{20}).{80}\r\n")


def _post(*commands: str) -> bytes:
    body = f"[{','.join(commands)}]".encode()
    return b"%b%d\r\n\r\n%b" % (_HEAD, len(body), body)


def _http(take: Take) -> Conversation:
    commands = [_POP]
    while True:
        found = _JOB.search((yield _post(*commands), http))
        commands = [_POP]
        if found:
            take(found[1])
            commands = [f'{{"command":"finish","id":"{found[1].decode()}","lease":{int(found[2])}}}', _POP]


def _beanstalk(take: Take) -> Conversation:
    question = b"reserve\r\n"
    while True:
        found = _ANSWER.search((yield question, lambda arrived: arrived if _ANSWER.search(arrived) else None))
        assert found
        take(found[2])
        question = b"delete %b\r\nreserve\r\n" % found[1]


def _resp(take: Take) -> Conversation:
    while True:
        (popped,) = yield pack("BLMPOP", _WAIT_S, 1, "r", "LEFT", "COUNT", 1), replies(1)
        if popped:
            take(popped[1])


def _http_add(job: str) -> bytes:
    return _post(f'{{"command":"add","topic":"{TOPIC}","id":"{job}","retention":0,"body":"{BODY}"}}')


def _beanstalk_put(job: str) -> bytes:
    return f"put 100 0 60 100\r\n{job:100}\r\n".encode()


def _resp_push(job: str) -> bytes:
    return pack("SET", "j:" + job, f'"{BODY}"') + pack("RPUSH", "r", job)


# Requests that add a ready job.
READY_OF: dict[str, Callable[[str], bytes]] = {"http": _http_add, "beanstalk": _beanstalk_put, "resp": _resp_push}
CONSUMERS_OF: dict[str, Callable[[Take], Conversation]] = {"http": _http, "beanstalk": _beanstalk, "resp": _resp}
