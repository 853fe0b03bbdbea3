"""mykit-delay's protocol: a job is pushed as JSON, everything else is a GET with the job's id. docs/protocols/mykit.md
is for its users.

All answers, failures too, are HTTP 200 with one wrapper; only requests that mykit-delay's web framework would refuse
get another status, with Spring's page. The JSON of a job is read leniently, as mykit-delay itself does. A value that
cannot be read raises BadJson, which is answered with 400; a value that is not allowed raises BadField.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple

import msgspec
import orjson
from msgspec import Raw

from buckets import Job
from buckets.job import LIVE
from jobqueue.commands.answers import Answer
from jobqueue.dialect_settings import Mykit
from jobqueue.engine.new_jobs import new_id
from jobqueue.errors import BadField, BadHttp, BadJson, Forbidden, MethodNotAllowed, NoSuchPath, Unauthorized
from jobqueue.protocols import HttpDialect, Reply, Request
from jobqueue.schema import inner, params
from jobqueue.schema.fields import LONGEST_NAME, TEN_YEARS_S
from jobqueue.wires import parameters


def done(data: str | None, message: str | None = None) -> Reply:
    """The reply to a success."""
    return Reply(200, _wrapped(data, message, success=True))


def failed(answer: Answer) -> Reply:
    """The reply to a failure, with the error of an answer."""
    return Reply(200, _wrapped(None, answer["error"], success=False), answer.get("retry_after"))


def refused(status: int, message: str, path: str) -> Reply:
    """Spring's page for a status other than 200. `path`: as the client sent it."""
    page = {
        "timestamp": time.time_ns() // 1_000_000,
        "status": status,
        "error": HTTPStatus(status).phrase,
        "message": message,
        "path": path,
    }
    return Reply(status, orjson.dumps(page))


def _wrapped(data: str | None, message: str | None, *, success: bool) -> bytes:
    wrapper = {
        "success": success,
        "data": data,
        "code": 200 if success else 500,
        "includes": None,
        "excludes": None,
        "onlyData": False,
        "callback": None,
        "message": message,
    }
    return orjson.dumps(wrapper)


_LONGEST_HEADER = 128
_MOST_MS = TEN_YEARS_S * 1000
_NUMBER = re.compile(r"\s*([+-]?)0*([0-9]{1,19})(\.[0-9]*)?\s*")
_NEW = (0, 5)  # mykit-delay's statuses that a pushed job may have: put, restored
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ANY = msgspec.json.Decoder()


class Push(NamedTuple):
    """A job as the client describes it. A member that was not sent is empty."""

    topic: str
    id: str
    body: str
    delay_ms: int
    created_ms: int
    """The time from which the delay counts, or 0 for now."""
    headers: dict[str, str]


def read(data: bytes) -> Push:
    """Read the body of a push. Raises BadJson, BadField."""
    members = _members(data)
    _number(members, "ttl")  # checked but not kept, as in mykit-delay
    status = _number(members, "status")
    push = Push(
        topic=_text(members, "topic"),
        id=_text(members, "id"),
        body=_text(members, "body"),
        delay_ms=max(_number(members, "delay"), 0),
        created_ms=_number(members, "createTime"),
        headers={name: text for name in ("bizKey", "subtopic") if (text := _text(members, name))},
    )
    if not push.topic:
        raise BadField("there is no topic")
    if status not in _NEW:
        raise BadField(f"the status of a new job must be 0 or 5, not {status}")
    _check(push)
    return push


def _check(push: Push) -> None:
    if push.delay_ms > _MOST_MS:
        raise BadField("the delay is longer than 10 years")
    for name, value in push.headers.items():
        if len(value) > _LONGEST_HEADER:
            raise BadField(f"{name} has {len(value)} characters; at most {_LONGEST_HEADER} are allowed")


def _members(data: bytes) -> dict[str, Raw]:
    try:
        return _MEMBERS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadJson("the body is not a JSON object") from None


def _text(members: dict[str, Raw], name: str) -> str:
    """A string, or any other scalar as its JSON text; empty for null."""
    raw = bytes(members.get(name, Raw(b"null"))).strip()
    if raw[:1] in (b"{", b"["):
        raise BadJson(f"{name} must be a string")
    if raw[:1] != b'"':
        return "" if raw == b"null" else raw.decode()
    try:
        text: str = _ANY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadJson(f"{name} is not a readable string") from None
    return text


def _number(members: dict[str, Raw], name: str) -> int:
    """A number, or a string with a number, without its fraction; 0 for null and an empty string."""
    text = _text(members, name)
    if not text:
        return 0
    found = _NUMBER.fullmatch(text)
    if not found:
        raise BadJson(f"{name} must be a whole number")
    return int(found[1] + found[2])


_PUSH = "/push"
_LIVE = [state.word for state in LIVE]
_ENDED = ("NOT_FOUND", "WRONG_STATE")
_STATUS = {
    BadJson: 400,
    BadHttp: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NoSuchPath: 404,
    MethodNotAllowed: 405,
}
"""The HTTP status of errors that mykit-delay's framework would answer itself."""


class MykitDialect(HttpDialect[Mykit]):
    """mykit-delay."""

    async def handle(self, request: Request, reserved: list[Job]) -> Reply:
        if request.path not in _ACTIONS:
            raise NoSuchPath("no such path")
        if request.method not in (("POST",) if request.path == _PUSH else ("GET", "POST")):
            raise MethodNotAllowed("this path does not accept the method")
        return await _ACTIONS[request.path](self, request)

    def refuse(self, error: Exception, request: Request) -> Reply:
        answer = self.tools.commands.refuse(error)
        status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 200)
        if status == 200:
            return failed(answer)
        return refused(status, answer["error"], request.path)

    async def _push(self, request: Request) -> Reply:
        push = read(request.body)
        job_id = push.id or self._made_id(push)
        answer = await self.ask(self._new(push, job_id), within=self._within)
        return done(job_id) if answer["success"] else failed(answer)

    def _made_id(self, push: Push) -> str:
        key = push.headers.get("bizKey")
        return ":".join([push.topic, *([key] if key else []), new_id()])

    def _new(self, push: Push, job_id: str) -> inner.Add:
        due_s = (push.created_ms + push.delay_ms) / 1000 if push.created_ms else None
        if due_s is not None and due_s > self.tools.redis_s() + TEN_YEARS_S:
            raise BadField("createTime and delay are more than 10 years ahead")
        return inner.Add(
            topic=self._inside(push.topic, "topic"),
            id=self._inside(job_id, "id"),
            body=Raw(parameters.stored_text(push.body, self.tools.settings.max_body_bytes)),
            delay=push.delay_ms / 1000 if due_s is None else None,
            at=None if due_s is None else max(due_s, 0.0),
            if_exists="replace",
            headers=push.headers or None,
        )

    def _inside(self, theirs: str, what: str) -> str:
        """Our name for a topic or an id of mykit-delay."""
        name = self.options.prefix + parameters.escaped(theirs)
        if not parameters.fits(name):
            raise BadField(f"the {what} would have {len(name)} characters here; at most {LONGEST_NAME} are allowed")
        return name

    def _job(self, request: Request) -> str:
        """The id of the job that is asked for."""
        theirs = _parameters(request).text("jobId")
        if not theirs:
            raise BadField("there is no jobId")
        return self._inside(theirs, "jobId")

    @property
    def _within(self) -> str:
        """The `within` of all commands: topics with other prefixes are out of reach."""
        return f"{self.options.prefix}*" if self.options.prefix else ""

    async def _delete(self, request: Request) -> Reply:
        answer = await self.ask(params.Delete(id=self._job(request)), within=self._within)
        if answer["success"]:
            return done(None, "the job was deleted before" if answer["was"] == "deleted" else None)
        return done(None, answer["error"]) if answer["code"] in _ENDED else failed(answer)

    async def _finish(self, request: Request) -> Reply:
        answer = await self.ask(params.Finish(id=self._job(request)), within=self._within)
        return done(None) if answer["success"] else failed(answer)

    async def _restore_job(self, request: Request) -> Reply:
        """Kick a dead job, and leave any other live job as it is. A job that ended, or was lost, comes back from the
        journal."""
        if _parameters(request).text("jobId") is None:
            return refused(400, "there is no jobId", request.path)
        job_id = self._job(request)
        answer = await self.ask(params.Kick(id=job_id), within=self._within)
        if answer["success"] or answer.get("state") in _LIVE:
            return done(None)
        if answer["code"] in _ENDED and self.tools.settings.journal:
            answer = await self.ask(inner.Restore(id=job_id), within=self._within)
        return done(None) if answer["success"] else failed(answer)

    async def _restore(self, request: Request) -> Reply:
        runs = _parameters(request).truth("expire")
        begun = time.monotonic()
        answer = await self.ask(inner.Restore(skips_overdue=runs is False), within=self._within)
        if not answer["success"]:
            return failed(answer)
        return done(f"restored {answer['count']} jobs in {(time.monotonic() - begun) * 1000:.0f} ms")

    async def _clear_all(self, request: Request) -> Reply:
        if not self.options.clear_all:
            raise BadField("clearAll is off; the setting clear_all allows it")
        begun = time.monotonic()
        answer = await self.ask(inner.Purge(prefix=self.options.prefix))
        if not answer["success"]:
            return failed(answer)
        return done(f"deleted {answer['count']} jobs in {(time.monotonic() - begun) * 1000:.0f} ms")


def _parameters(request: Request) -> parameters.Parameters:
    """The parameters in the query of a request, and in a form."""
    is_form = request.method == "POST" and parameters.is_form(request.headers.get("Content-Type", ""))
    return parameters.Parameters(request.query, *([request.body] if is_form else []))


_ACTIONS: dict[str, Callable[[MykitDialect, Request], Awaitable[Reply]]] = {
    _PUSH: MykitDialect._push,
    "/delete": MykitDialect._delete,
    "/finish": MykitDialect._finish,
    "/reStoreJob": MykitDialect._restore_job,
    "/reStore": MykitDialect._restore,
    "/clearAll": MykitDialect._clear_all,
}
