"""The requests of lmstfy's clients: which call one is, its queues, and its parameters. Each refusal is a BadRequest
whose message is what the client gets as `error`."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from jobqueue.dialect_settings import Lmstfy
from jobqueue.errors import BadField, BadJson
from jobqueue.protocols import Request
from jobqueue.schema.fields import DAY_S, LONGEST_NAME, TEN_YEARS_S
from jobqueue.wires import parameters
from jobqueue.wires.parameters import Parameters

_NAME = re.compile(r"[-_A-Za-z0-9]{1,255}")
_NUMBER = re.compile(r"[0-9]{1,19}")
_UINT32 = 2**32 - 1
_UINT16 = 2**16 - 1
_INT64 = 2**63 - 1
_MOST_JOBS = 64  # in a bulk
_MOST_POPPED = 100
_MOST_QUEUES = 100  # of a consume: those that a pop takes
_LONGEST_WAIT_S = 600
_ATTRIBUTE = "job-attr-"
_MOST_ATTRIBUTES = 16
_LONGEST_ATTRIBUTE = (32, 128)  # its name and its value; what is longer is cut off
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])


class Call(NamedTuple):
    """What a request asks for."""

    name: str
    """The method, and what follows the queue in the path, such as `GET deadletter size`; empty where the path is none
    of theirs."""
    namespace: str
    queue: str
    job: str
    """As the client names it."""


class Publishing(NamedTuple):
    """How new jobs are to be kept."""

    delay: int
    ttl: float | None
    """From the due time."""
    tries: int
    attributes: dict[str, str]


class Consuming(NamedTuple):
    """How jobs are to be consumed."""

    ttr: float
    wait: int
    most: int


def call(request: Request) -> Call:
    """The call that a request is."""
    top, *parts = request.path.split("/")[1:]
    if top != "api" or len(parts) < 2 or not all(parts) or parts[2:] == ["job"]:
        return Call("", "", "", "")
    namespace, queue, *tail = map(unquote, parts)
    job = tail.pop() if tail[:1] == ["job"] and len(tail) == 2 else ""
    return Call(" ".join((request.method, *tail)), namespace, queue, job)


def topic(prefix: str, namespace: str, queue: str) -> str:
    """The topic of a queue. Raises BadField."""
    if not _NAME.fullmatch(namespace):
        raise BadField("the namespace must have 1 to 255 characters of A-Z a-z 0-9 - _")
    if not _NAME.fullmatch(queue) or queue.startswith("_"):
        raise BadField("a queue must have 1 to 255 characters of A-Z a-z 0-9 - _ and not begin with _")
    name = f"{prefix}{namespace}/{queue}"
    if not parameters.fits(name):
        raise BadField(f"the namespace and the queue are too long; together at most {LONGEST_NAME} characters")
    return name


def topics(prefix: str, namespace: str, queues: str) -> list[str]:
    """The topics of queues with commas between, each once. Raises BadField."""
    found = dict.fromkeys(topic(prefix, namespace, queue) for queue in queues.split(",") if queue)
    if not found:
        raise BadField("invalid queue name(s)")
    if len(found) > _MOST_QUEUES:
        raise BadField(f"too many queues; at most {_MOST_QUEUES} are allowed")
    return list(found)


def publishing(request: Request, options: Lmstfy) -> Publishing:
    """Raises BadField."""
    query = Parameters(request.query)
    delay = _number(query, "delay", 0, _UINT32)
    if delay > TEN_YEARS_S:
        raise BadField("invalid delay: it is longer than 10 years")
    ttl = _number(query, "ttl", options.ttl_s, _UINT32)
    if 0 < ttl < delay:
        raise BadField("ttl is shorter than delay")
    tries = int(_number(query, "tries", options.tries, _UINT16))
    if tries == 0:
        raise BadField("tries shouldn't be zero")
    left = max(min(ttl - delay, TEN_YEARS_S), 0.001)
    return Publishing(int(delay), left if ttl else None, tries, _attributes(request))


def consuming(request: Request, options: Lmstfy) -> Consuming:
    """Raises BadField."""
    query = Parameters(request.query)
    ttr = min(_number(query, "ttr", options.ttr_s, _UINT32, least=1), DAY_S)
    wait = min(_number(query, "timeout", 0, _UINT32), _LONGEST_WAIT_S)
    return Consuming(ttr, int(wait), int(_number(query, "count", 1, _MOST_POPPED, least=1)))


def limit(request: Request) -> int:
    """How many dead letters are meant. A ttl is read, but not used: that of each job begins again. Raises BadField."""
    query = Parameters(request.query)
    _number(query, "ttl", 0, _INT64)
    return int(_number(query, "limit", 1, _INT64, least=1))


def elements(body: bytes) -> list[bytes]:
    """The jobs of a bulk, each as the text that it is in the array. Raises BadJson, BadField."""
    try:
        jobs = _ELEMENTS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadJson("request body should be an array of objects") from None
    if not jobs:
        raise BadField("no jobs")
    if len(jobs) > _MOST_JOBS:
        raise BadField("too many jobs")
    return list(map(bytes, jobs))


def _number(query: Parameters, name: str, default: float, most: int, least: int = 0) -> float:
    text = query.text(name)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise BadField(f"invalid {name}")
    return int(text)


def _attributes(request: Request) -> dict[str, str]:
    if request.headers.get("Enable-Job-Version", "").upper() != "YES":
        return {}
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        if name.lower().startswith(_ATTRIBUTE) and value:
            longest_name, longest = _LONGEST_ATTRIBUTE
            found.setdefault(name[len(_ATTRIBUTE) :][:longest_name].lower(), value[:longest])
    if len(found) > _MOST_ATTRIBUTES:
        raise BadField(f"too many attributes, cannot exceed {_MOST_ATTRIBUTES}")
    if parameters.ENCODING in found:
        raise BadField(f"an attribute cannot have the name {parameters.ENCODING}")
    _check_text("".join(map("".join, found.items())))
    return found


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadField("attributes must be UTF-8") from None
