"""Messages: what a broker gets for a job, in the form that the settings of its sink ask for.

A sender sends the message of a job, reports the outcome, and decides what happens to the job.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from jobqueue_client import Bury, Job, Retry

from jobqueue.sinks import OUR_HEADERS, Common, Down, Message, Poison, Refused, WrongDestination, delivered_at
from jobqueue.sinks.pump.notices import Figures
from jobqueue.tracing import log_field

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
        """The job's headers, without those whose names are reserved by the broker or by us."""
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
    """The key of a job's message: the same for every delivery during one life of the job's id."""
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


class NotSent(Retry):
    """The broker is down, which does not count as a try of the job. `why`: the reason, without the name of the sink."""

    def __init__(self, sink: str, why: str) -> None:
        super().__init__(0, attempt=False, reason=f"sink {sink}: {why}")
        self.why = why


class TopicWaits(NotSent):
    """The broker works, but not for the messages of this job's topic."""


class Sender:
    """Sends the messages of one sink. `send`: sends a message; raises Poison, Refused, WrongDestination, Down."""

    def __init__(
        self, name: str, settings: Common, send: Callable[[Message], Awaitable[None]], figures: Figures
    ) -> None:
        self._name, self._send, self._figures = name, send, figures
        self._messages = Messages(name, settings)
        self._is_by_topic = settings.is_by_topic

    async def send(self, job: Job) -> None:
        """Return once the broker has confirmed the message. Raises Bury, Retry, NotSent, TopicWaits."""
        self._figures.in_flight.labels(self._name).inc()
        began = time.monotonic()
        try:
            await self._send(self._messages.of(job))
        except Poison as poison:
            raise self._buried(job, str(poison)) from None
        except Refused as refused:
            raise self._released(job, str(refused), refused.after_s) from None
        except WrongDestination as wrong:
            if not self._is_by_topic:
                raise self._released(job, str(wrong)) from None
            raise self._returned(job, TopicWaits, str(wrong)) from None
        except Down as down:
            raise self._returned(job, NotSent, str(down)) from None
        except Exception as error:
            # Without its message and values: they may hold a header or a body.
            frames = traceback.format_tb(error.__traceback__)
            log.error("sink.broke", sink=self._name, reason=type(error).__name__, trace=frames)
            raise self._released(job, f"a defect of the sink: {type(error).__name__}") from None
        finally:
            self._figures.in_flight.labels(self._name).dec()
        self._count("confirmed")
        confirm_s = time.monotonic() - began
        self._figures.confirm_s.labels(self._name).observe(confirm_s)
        self._figures.due_to_confirmed_s.labels(self._name).observe(
            max(0.0, delivered_at(job.lease) - job.due + confirm_s)
        )

    def was_lost(self) -> None:
        """Note that a job was confirmed, but by now belongs to another worker, or to nobody."""
        self._count("sent_twice")

    def _buried(self, job: Job, reason: str) -> Bury:
        self._count("poison")
        log.warning("sink.buried", **self._about(job), reason=reason)
        return Bury(f"sink {self._name}: {reason}")

    def _released(self, job: Job, reason: str, after_s: float | None = None) -> Retry:
        self._count("refused")
        log.warning("sink.refused", **self._about(job), attempt=job.attempt, reason=reason)
        self._tell_if_lost(job, reason)
        return Retry(after_s, reason=f"sink {self._name}: {reason}")

    def _returned(self, job: Job, kind: type[NotSent], reason: str) -> NotSent:
        self._count("returned")
        self._tell_if_lost(job, reason)
        return kind(self._name, reason)

    def _tell_if_lost(self, job: Job, reason: str) -> None:
        if not job.ttr:  # its pop has finished it
            log.warning("sink.dropped", **self._about(job), reason=reason)

    def _about(self, job: Job) -> dict[str, Any]:
        """The fields of a log line about a job."""
        return {"sink": self._name, "topic": job.topic, "id": job.id, **log_field(job.trace_id)}

    def _count(self, outcome: str) -> None:
        self._figures.jobs.labels(self._name, outcome).inc()
