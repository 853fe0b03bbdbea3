"""The commands: what each one sends, and how its answer is read. Without any I/O.

Both clients have a method for each of these functions, with the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Generic, Literal, NamedTuple, TypeVar, Unpack

from jobqueue_client.answers import (
    Actions,
    Added,
    Answer,
    Details,
    Explained,
    Figures,
    Forecast,
    Found,
    Health,
    Identity,
    Instances,
    Kicked,
    Left,
    OperationTold,
    Paused,
    Peeked,
    Purged,
    Resumed,
    Scheduled,
    ScheduleList,
    SearchBegun,
    SettingsShown,
    Settled,
    Stats,
    Timed,
    TokenTold,
    TopicKicked,
    Topics,
    Touched,
    Unscheduled,
    Workers,
)
from jobqueue_client.fields import (
    ActionsFields,
    AddFields,
    BuryFields,
    DeleteFields,
    FiguresFields,
    FindFields,
    FinishFields,
    OperationFields,
    PeekFields,
    PopFields,
    PurgeFields,
    ReleaseFields,
    ScheduleFields,
    SchedulesFields,
    Seconds,
    TokenFields,
    TopicsFields,
    TouchFields,
    UpdateFields,
    plain,
)
from jobqueue_client.job import Job

T = TypeVar("T")

_KEEPS_BODY = ("later", "sooner")  # with these values of `if_exists`, an add without a body keeps the existing one


class Command(NamedTuple, Generic[T]):
    """A command's fields as sent, and how its answer is read."""

    fields: dict[str, Any]
    read: Callable[[Any], T]
    topic: str | None = None
    """The topic of the job that the command ends, if it is known; it is not sent."""


def _as_it_is(answer: Any) -> Any:
    return answer


def _command(name: str, given: dict[str, Any]) -> Command[Any]:
    """A command whose answer is returned as received."""
    return Command(_fields(name, given), _as_it_is)


def _fields(name: str, given: dict[str, Any]) -> dict[str, Any]:
    # Only a body is ever null on purpose.
    fields = {key: value for key, value in given.items() if value is not None or key == "body"}
    return plain({**fields, "command": name})


def _of_job(job: Job | str, given: Any) -> dict[str, Any]:
    """The fields of a command for a job; a Job adds its lease."""
    return {"id": job.id, "lease": job.lease, **given} if isinstance(job, Job) else {"id": job, **given}


def _end(name: str, job: Job | str, given: Any) -> Command[Any]:
    """A command that ends a delivery."""
    return _command(name, _of_job(job, given))._replace(topic=job.topic if isinstance(job, Job) else None)


def _topics(topics: str | Sequence[str]) -> dict[str, Any]:
    return {"topic": topics} if isinstance(topics, str) else {"topics": list(topics)}


def add(topic: str, body: Any, delay: Seconds | None = None, **fields: Unpack[AddFields]) -> Command[Added]:
    """`body`: `...` for no body, so that a job that is moved keeps its body."""
    if not isinstance(delay, int | float | timedelta | None) or isinstance(delay, bool):
        raise TypeError(f"delay must be a number of seconds or a timedelta, not {delay!r}")
    if body is ... and fields.get("if_exists") not in _KEEPS_BODY:
        raise TypeError(f"an add needs a body, except with if_exists {' or '.join(_KEEPS_BODY)}")
    given = {} if body is ... else {"body": body}
    return _command("add", {"topic": topic, **given, "delay": delay, **fields})


def schedule(name: str, topic: str, body: Any, **fields: Unpack[ScheduleFields]) -> Command[Scheduled]:
    return _command("schedule", {"name": name, "topic": topic, "body": body, **fields})


def unschedule(name: str) -> Command[Unscheduled]:
    return _command("unschedule", {"name": name})


def schedules(**fields: Unpack[SchedulesFields]) -> Command[ScheduleList]:
    return _command("schedules", {**fields})


def pop(topics: str | Sequence[str], **fields: Unpack[PopFields]) -> Command[Job | None]:
    return Command(_fields("pop", {**_topics(topics), **fields}), _popped)


def pop_many(topics: str | Sequence[str], count: int, **fields: Unpack[PopFields]) -> Command[list[Job]]:
    return Command(_fields("pop", {**_topics(topics), "count": count, **fields}), _popped_many)


def _popped(answer: Answer) -> Job | None:
    return Job.read(answer) if answer["id"] is not None else None


def _popped_many(answer: Answer) -> list[Job]:
    return [Job.read(job) for job in answer["jobs"]]


def finish(job: Job | str, **fields: Unpack[FinishFields]) -> Command[Settled]:
    return _end("finish", job, fields)


def touch(job: Job | str, **fields: Unpack[TouchFields]) -> Command[Touched]:
    return _command("touch", _of_job(job, fields))


def release(job: Job | str, **fields: Unpack[ReleaseFields]) -> Command[Timed]:
    return _end("release", job, fields)


def bury(job: Job | str, **fields: Unpack[BuryFields]) -> Command[Settled]:
    return _end("bury", job, fields)


def delete(id: str, **fields: Unpack[DeleteFields]) -> Command[Settled]:
    return _command("delete", {"id": id, **fields})


def get(id: str) -> Command[Details]:
    return _command("get", {"id": id})


def explain(id: str, life: float | Literal["all"] | None) -> Command[Explained]:
    return _command("explain", {"id": id, "life": life})


def run(id: str) -> Command[Timed]:
    return _command("run", {"id": id})


def kick(id: str) -> Command[Kicked]:
    return _command("kick", {"id": id})


def kick_topic(topic: str, count: int | None) -> Command[TopicKicked]:
    return _command("kick", {"topic": topic, "count": count})


def update(id: str, **fields: Unpack[UpdateFields]) -> Command[Timed]:
    return _command("update", {"id": id, **fields})


def peek(topic: str, **fields: Unpack[PeekFields]) -> Command[Peeked]:
    begin = fields.pop("from_", None)
    return _command("peek", {"topic": topic, **fields, "from": begin})


def find(prefix: str, topic: str | None, **fields: Unpack[FindFields]) -> Command[Found | SearchBegun]:
    return _command("find", {"prefix": prefix, "topic": topic, **fields})


def topics(**fields: Unpack[TopicsFields]) -> Command[Topics]:
    return _command("topics", {**fields})


def forecast(topic: str | None, hours: int | None) -> Command[Forecast]:
    return _command("forecast", {"topic": topic, "hours": hours})


def figures(**fields: Unpack[FiguresFields]) -> Command[Figures]:
    return _command("figures", {**fields})


def stats(topic: str | None) -> Command[Stats]:
    return _command("stats", {"topic": topic})


def workers(topic: str | None) -> Command[Workers]:
    return _command("workers", {"topic": topic})


def instances() -> Command[Instances]:
    return _command("instances", {})


def health() -> Command[Health]:
    return _command("health", {})


def pause(topic: str, seconds: Seconds | None) -> Command[Paused]:
    return _command("pause", {"topic": topic, "seconds": seconds})


def resume(topic: str) -> Command[Resumed]:
    return _command("resume", {"topic": topic})


def purge(topic: str, **fields: Unpack[PurgeFields]) -> Command[Purged]:
    return _command("purge", {"topic": topic, **fields})


def operation(do: str, **fields: Unpack[OperationFields]) -> Command[OperationTold]:
    return _command("operation", {"do": do, **fields})


def leave(worker: str) -> Command[Left]:
    return _command("leave", {"worker": worker})


def actions(**fields: Unpack[ActionsFields]) -> Command[Actions]:
    return _command("actions", {**fields})


def settings() -> Command[SettingsShown]:
    return _command("settings", {})


def whoami() -> Command[Identity]:
    return _command("whoami", {})


def token(action: str, **fields: Unpack[TokenFields]) -> Command[TokenTold]:
    return _command("token", {"action": action, **fields})
