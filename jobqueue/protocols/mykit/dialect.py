"""mykit-delay's protocol: a job is pushed as JSON, everything else is a GET with the job's id. Answers are HTTP 200
with one wrapper, failures too; only what its web framework would refuse has another status."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from msgspec import Raw

from buckets import Job
from buckets.job import LIVE
from jobqueue.dialect_settings import Mykit
from jobqueue.engine.new_jobs import new_id
from jobqueue.errors import BadField, BadHttp, BadJson, Forbidden, MethodNotAllowed, NoSuchPath, Unauthorized
from jobqueue.protocols import HttpDialect, Reply, Request
from jobqueue.protocols.mykit import answers, pushes
from jobqueue.protocols.mykit.pushes import Push
from jobqueue.schema import inner
from jobqueue.schema.fields import LONGEST_NAME, TEN_YEARS_S
from jobqueue.wires import parameters

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
"""Of what does not reach their code."""


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
            return answers.failed(answer)
        return answers.refused(status, answer["error"], request.path)

    async def _push(self, request: Request) -> Reply:
        push = pushes.read(request.body)
        job_id = push.id or self._made_id(push)
        answer = await self.ask(self._new(push, job_id))
        return answers.done(job_id) if answer["success"] else answers.failed(answer)

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
            within=self._within,
            headers=push.headers or None,
        )

    def _inside(self, theirs: str, what: str) -> str:
        """Our name for theirs."""
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
        """Topics of other prefixes are out of reach."""
        return f"{self.options.prefix}*" if self.options.prefix else ""

    async def _delete(self, request: Request) -> Reply:
        answer = await self.ask(inner.Delete(id=self._job(request), within=self._within))
        if answer["success"]:
            return answers.done(None, "the job was deleted before" if answer["was"] == "deleted" else None)
        return answers.done(None, answer["error"]) if answer["code"] in _ENDED else answers.failed(answer)

    async def _finish(self, request: Request) -> Reply:
        answer = await self.ask(inner.Finish(id=self._job(request), within=self._within))
        return answers.done(None) if answer["success"] else answers.failed(answer)

    async def _restore_job(self, request: Request) -> Reply:
        """Nothing that lives was lost; what ended, or was lost, the journal has."""
        if _parameters(request).text("jobId") is None:
            return answers.refused(400, "there is no jobId", request.path)
        job_id = self._job(request)
        answer = await self.ask(inner.Kick(id=job_id, within=self._within))
        if answer["success"] or answer.get("state") in _LIVE:
            return answers.done(None)
        if answer["code"] in _ENDED and self.tools.settings.journal:
            answer = await self.ask(inner.Restore(id=job_id, within=self._within))
        return answers.done(None) if answer["success"] else answers.failed(answer)

    async def _restore(self, request: Request) -> Reply:
        runs = _parameters(request).truth("expire")
        begun = time.monotonic()
        answer = await self.ask(inner.Restore(within=self._within, skips_overdue=runs is False))
        if not answer["success"]:
            return answers.failed(answer)
        return answers.done(f"restored {answer['count']} jobs in {(time.monotonic() - begun) * 1000:.0f} ms")

    async def _clear_all(self, request: Request) -> Reply:
        if not self.options.clear_all:
            raise BadField("clearAll is off; the setting clear_all allows it")
        begun = time.monotonic()
        answer = await self.ask(inner.Purge(within=self.options.prefix))
        if not answer["success"]:
            return answers.failed(answer)
        return answers.done(f"deleted {answer['count']} jobs in {(time.monotonic() - begun) * 1000:.0f} ms")


def _parameters(request: Request) -> parameters.Parameters:
    """Of the query, and of a form."""
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
