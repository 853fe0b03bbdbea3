"""Requests to our service as bytes, and conversations of producers and consumers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import orjson

from tests.bench.compare import BODY, WrongError
from tests.bench.compare.load.conversations import Conversation, http

TOPIC = "bench"
_WAIT_S = 30
_HEAD = b"POST /command HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
_ADD = '{"command":"add","topic":"%s","id":"%s",%s,"retention":%d,"body":"%s"}'
_ONE = re.compile(rb'"id":"([^"]+)","value".*?"lease":(\d+)')


class Popped(NamedTuple):
    id: str
    lease: int


Take = Callable[[list[str]], None]


def post(body: bytes) -> bytes:
    return b"%b%d\r\n\r\n%b" % (_HEAD, len(body), body)


def add(ids: list[str], when: list[str], retention_s: float) -> Conversation:
    """One request of adds; `when` has the due-time field for each job."""
    commands = [_ADD % (TOPIC, id_, due, retention_s, BODY) for id_, due in zip(ids, when, strict=True)]
    answer = yield post(f"[{','.join(commands)}]".encode()), http
    if answer.count(b'"result":"created"') != len(ids):
        raise WrongError(f"not all were added: {answer[:500]!r}")


def pop(count: int, wait_s: int = 0) -> str:
    return f'{{"command":"pop","topic":"{TOPIC}","count":{count},"wait":{wait_s}}}'


def finish(job: Popped) -> str:
    return f'{{"command":"finish","id":"{job.id}","lease":{job.lease}}}'


def array(*commands: str) -> bytes:
    return post(f"[{','.join(commands)}]".encode())


def well(answer: bytes) -> bytes:
    """Check that nothing was refused; raises WrongError otherwise."""
    if b'"success":false' in answer:
        raise WrongError(f"refused: {answer[:500]!r}")
    return answer


def read_batch(answer: bytes) -> list[Popped]:
    """The jobs of a pop with a count, which is the last member if the answer is an array."""
    parsed = orjson.loads(well(answer))
    last = parsed[-1] if isinstance(parsed, list) else parsed
    return [Popped(job["id"], job["lease"]) for job in last["jobs"]]


def work_off(take: Take, size: int, done: Callable[[], bool]) -> Conversation:
    """Pop and finish batches, in separate requests, until done."""
    while not done():
        jobs = read_batch((yield post(pop(size).encode()), http))
        if jobs:
            take([job.id for job in jobs])
            well((yield array(*map(finish, jobs)), http))


def consume(take: Take, size: int) -> Conversation:
    """Wait for ready jobs; finishing those taken and the next pop share a request. Never ends."""
    jobs: list[Popped] = []
    while True:
        jobs = read_batch((yield array(*map(finish, jobs), pop(size, _WAIT_S)), http))
        take([job.id for job in jobs])


def serve_one(take: Callable[[str], None]) -> Conversation:
    """Like `consume`, one job at a time, and parsed in the cheapest way, because its time is measured."""
    waiting = f'{{"command":"pop","topic":"{TOPIC}","wait":{_WAIT_S}}}'
    answer = yield array(waiting), http
    while True:
        found = _ONE.search(answer)
        if found:
            job = Popped(found[1].decode(), int(found[2]))
            take(job.id)
            answer = well((yield array(finish(job), waiting), http))
        else:
            answer = well((yield array(waiting), http))
