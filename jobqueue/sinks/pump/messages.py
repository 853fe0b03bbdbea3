"""Messages: what a broker gets of a job, in the form that its sink's settings ask for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from jobqueue_client import Job

from jobqueue.sinks import OUR_HEADERS, Common, Message, Poison

log = structlog.get_logger()


class Messages:
    """Makes the messages of one sink."""

    def __init__(self, name: str, settings: Common) -> None:
        self._name, self._settings = name, settings
        self._form = _FORMS[settings.body]
        self._left_out: set[str] = set()

    def of(self, job: Job) -> Message:
        """The message of a job, whose body is the bytes of its JSON. Raises Poison."""
        key = key_of(job)
        ours = (job.id, key, job.topic, f"{job.due:.3f}", str(job.attempt))
        headers = self._own(job.headers or {}) | self._settings.headers | dict(zip(OUR_HEADERS, ours, strict=True))
        body = self._form(job)
        is_json = self._settings.body != "text"
        about = (job.id, job.topic, key, job.due, job.attempt, headers, body)
        return Message(*about, is_json=is_json, is_last=job.last_try, once=not job.ttr)

    def _own(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The job's headers, without those of a name that the broker keeps for itself, or that we do."""
        own = {}
        for name, value in headers.items():
            if name.lower() not in OUR_HEADERS and not self._settings.keeps(name):
                own[name] = value
            elif name not in self._left_out and len(self._left_out) < _MOST_TOLD:
                self._left_out.add(name)
                log.warning("sink.header_left_out", sink=self._name, header=name[:64])
        return own


_MOST_TOLD = 100


def key_of(job: Job) -> str:
    """The same for every delivery of a life of an id."""
    return f"{job.id}:{round((job.created or 0) * 1000)}"


def _as_it_is(job: Job) -> bytes:
    return bytes(job.body)


def _text(job: Job) -> bytes:
    try:
        text = json.loads(job.body)
        if isinstance(text, str):
            return text.encode()
    except (ValueError, RecursionError):
        pass
    raise Poison('the body is no string, or no text, which body = "text" asks for')


def _envelope(job: Job) -> bytes:
    told: dict[str, Any] = {"id": job.id, "topic": job.topic, "due": job.due, "created": job.created}
    told |= {"attempt": job.attempt, "headers": job.headers or {}}
    before = json.dumps(told, ensure_ascii=False, separators=(",", ":"))[:-1]
    return before.encode() + b',"body":' + bytes(job.body) + b"}"


_DELIVERED = 2  # the status of mykit's jobs that are due


def _mykit(job: Job) -> bytes:
    """What mykit-delay sent to its brokers: the job as it was pushed, with its body as a text."""
    headers, created_ms = job.headers or {}, round((job.created or 0) * 1000)
    try:
        body = json.loads(job.body)
    except (ValueError, RecursionError):
        body = None
    told = {
        "bizKey": headers.get("bizKey"),
        "body": body if isinstance(body, str) else bytes(job.body).decode(),
        "createTime": created_ms,
        "delay": max(round(job.due * 1000) - created_ms, 0),
        "id": job.id,
        "status": _DELIVERED,
        "subtopic": headers.get("subtopic"),
        "topic": job.topic,
        "ttl": 0,
    }
    known = {name: value for name, value in told.items() if value is not None}
    return json.dumps(known, ensure_ascii=False, separators=(",", ":")).encode()


_FORMS: dict[str, Callable[[Job], bytes]] = {
    **{"as-is": _as_it_is, "text": _text, "envelope": _envelope, "mykit": _mykit},
}
