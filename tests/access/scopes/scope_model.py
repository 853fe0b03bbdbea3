"""What a token may do, and what each command answers, told anew from what stands in Redis: the model of test_scopes."""

from __future__ import annotations

import asyncio
import fnmatch
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from buckets.job import LIVE, Job, State
from buckets.keys import Keys, shard_of
from buckets.record import unpack
from buckets.redis.client import Redis
from buckets.schedules.record import unpack_schedule
from jobqueue.engine.schedules.definition import decoded
from jobqueue.schema.checks import KEEPS_BODY

Command = dict[str, Any]
Answer = dict[str, Any]

ALLOWED = {
    "produce": "add update delete schedule unschedule",
    "consume": "pop finish touch release bury leave delete",
    "look": "get explain peek stats forecast figures topics workers instances health schedules find",
    "operate": "kick run pause resume purge operation",
    "admin": "add update delete pop finish touch release bury leave get explain peek stats topics workers kick run"
    " pause resume purge schedule unschedule schedules forecast figures find instances health token actions settings"
    " operation",
}
BY_ID = ("finish", "delete", "touch", "release", "bury", "run", "update", "get", "explain")
CHANGES = (*BY_ID[:-2], "add", "pop", "kick", "purge", "pause", "resume")
_COPY = 0x80  # of a record's flags: a virtual topic's add made it
VIRTUAL = {"fan-out": ("alpha-one", "delta"), "fan-in": ("bravo-one", "bravo-two", "charlie")}


@dataclass(frozen=True)
class Scope:
    """A token as the model knows it."""

    name: str
    rights: tuple[str, ...]
    topics: tuple[str, ...] = ()
    own_ids: bool = False

    @property
    def commands(self) -> set[str]:
        """The commands that it may give."""
        return {"whoami", *(name for right in self.rights for name in ALLOWED.get(right, "").split())}

    @property
    def sees_bodies(self) -> bool:
        return bool({"bodies", "admin"} & {*self.rights})

    def reaches(self, topic: str) -> bool:
        return not self.topics or any(fnmatch.fnmatchcase(topic, pattern) for pattern in self.topics)

    def refusal(self, command: Command) -> dict[str, str] | None:
        """What is FORBIDDEN about a command by its request alone: the right or the topic that the answer names, which
        is empty for an id that is not its own."""
        name = command["command"]
        if name not in self.commands or (_is_search(command) and "operation" not in self.commands):
            return {"right": ""}
        if command.get("body") is True and name in ("get", "peek", "schedules") and not self.sees_bodies:
            return {"right": "bodies"}
        for topic in topics_of(command):
            if not self.reaches(topic):
                return {"topic": topic}
        if name == "figures" and self.topics and "topic" not in command:
            return {}
        job_id = command.get("id")
        new = {"add": job_id, "schedule": command.get("name")}.get(name)
        if self.own_ids and new and not new.startswith(f"{command['topic']}:"):
            return {}
        return None


def _is_search(command: Command) -> bool:
    """Whether it begins an operation."""
    return command["command"] == "find" and "topic" not in command


def topics_of(command: Command) -> list[str]:
    """The topics that a command names."""
    if command["command"] == "token":
        return []
    if command["command"] == "operation":
        wanted = command.get("filter", {}).get("topic", "*")
        return [] if "*" in wanted or "?" in wanted else [wanted]
    return command.get("topics") or [command[name] for name in ("topic",) if name in command]


def ids_of(command: Command) -> list[str]:
    """The ids that a command may change, or read; of a schedule that of its entries, which no job has."""
    if command["command"] in ("schedule", "unschedule"):
        return [f"~{command['name']}"]
    job_id = command.get("id")
    if job_id is None or command["command"] == "token":
        return []
    if command["command"] == "add" and command["topic"] in VIRTUAL:
        return [f"{job_id}@{topic}" for topic in VIRTUAL[command["topic"]]]
    return [job_id]


@dataclass
class Snapshot:
    """What Redis holds at one moment."""

    jobs: dict[str, Job] = field(default_factory=dict)
    """By id, tombstones too."""
    paused: dict[str, bytes] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of each topic that has had a job, with the totals."""
    topics: set[str] = field(default_factory=set)
    schedules: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By name, their topics and bodies."""

    def of(self, topic: str, *states: State) -> list[Job]:
        """The jobs of a topic in these states."""
        return [job for job in self.jobs.values() if job.topic == topic and job.state in states]

    def live(self, topic: str) -> Counter[str]:
        return Counter(job.state.word for job in self.of(topic, *LIVE))


async def snapshot(redis: Redis, keys: Sequence[Keys], ids: Sequence[str], topics: Sequence[str]) -> Snapshot:
    """Everything about these jobs and topics."""
    now = Snapshot()
    for shard, each in enumerate(keys):
        own = [job_id for job_id in ids if shard_of(job_id, len(keys)) == shard]
        for job_id, raw in zip(own, await redis.read("MGET", *map(each.job, own)) if own else (), strict=True):
            if raw is not None:
                now.jobs[job_id] = unpack(job_id, raw)
        figures = await asyncio.gather(*(redis.read("HGETALL", each.counts(topic)) for topic in topics))
        for topic, flat in zip(topics, figures, strict=True):
            numbers = {name.decode(): int(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}
            if numbers:
                now.counts[topic] = dict(Counter(now.counts.get(topic, {})) + Counter(numbers))
        now.topics |= {name.decode() for name in await redis.read("ZRANGE", each.topics, 0, -1)}
        flat = await redis.read("HGETALL", each.schedules)
        for name, raw in zip(flat[::2], flat[1::2], strict=True):
            definition = decoded(unpack_schedule(name.decode(), raw).definition)
            now.schedules[name.decode()] = definition.topic, json.loads(bytes(definition.body))
    pauses = await redis.read("MGET", *map(keys[0].paused, topics))
    now.paused = {topic: raw for topic, raw in zip(topics, pauses, strict=True) if raw is not None}
    return now


Outcome = tuple[str, str | None]
"""A code and the state that goes with it; OK for what was done."""
_MISSING: Outcome = ("NOT_FOUND", None)


def outcome(command: Command, scope: Scope, before: Snapshot) -> Outcome | None:
    """What a command of one job comes to whose request alone forbids nothing; None for any other command."""
    name = command["command"]
    if name == "add":
        return _added(command, scope, before) if "id" in command else ("OK", None)
    if name in ("schedule", "unschedule"):
        return _scheduled(command, scope, before)
    if "id" not in command or name not in (*BY_ID, "pop", "kick"):
        return None
    job = before.jobs.get(command["id"])
    if job is None or not scope.reaches(job.topic):
        return _MISSING
    return _OF_ONE[name](job, command)


def _scheduled(command: Command, scope: Scope, before: Snapshot) -> Outcome:
    old = before.schedules.get(command["name"])
    if command["command"] == "unschedule":
        return ("OK", None) if old and scope.reaches(old[0]) else _MISSING
    return ("ALREADY_EXISTS", None) if old and not scope.reaches(old[0]) else ("OK", None)


def _added(command: Command, scope: Scope, before: Snapshot) -> Outcome:
    how = command.get("if_exists", "keep")
    targets = VIRTUAL.get(command["topic"], (command["topic"],))
    olds = [before.jobs.get(job_id) for job_id in ids_of(command)]
    for old, target in zip(olds, targets, strict=True):
        if old is not None and not scope.reaches(old.topic) and not (old.topic == target and old.raw[2] & _COPY):
            return "ALREADY_EXISTS", None
        refusal = _unmoved(command, old, target) if how in KEEPS_BODY else None
        if refusal:
            return refusal
        if old is None:
            continue
        if how == "reject":
            return "ALREADY_EXISTS", old.state.word
        stays = how == "keep" or (how == "renew" and old.state < State.DEAD)
        if old.state is State.RESERVED and not stays:
            return "RESERVED", "reserved"
    states = {old.state if old is not None else None for old in olds}
    if how == "keep" and states <= {State.DEAD, State.DELETED}:
        return "ALREADY_EXISTS", "dead" if State.DEAD in states else "deleted"
    return "OK", None


def _unmoved(command: Command, old: Job | None, target: str) -> Outcome | None:
    """Why an add that moves a job in one direction neither finds one to move nor may create it."""
    if old is not None and old.topic != target:
        return "ALREADY_EXISTS", old.state.word
    if old is not None and old.state is State.READY:
        return "TOO_LATE", "ready"
    has_body = "body" in command or (old is not None and old.state in LIVE)
    return None if has_body else ("BAD_FIELD", None)


def _leased(job: Job, command: Command) -> Outcome | None:
    word = job.state.word
    if job.state is State.DELETED:
        return "NOT_FOUND", word
    if "lease" in command and job.deliveries and command["lease"] != job.lease:
        return "STALE_LEASE", word
    return None if job.state is State.RESERVED else ("NOT_RESERVED", word)


def _changed(job: Job, command: Command) -> Outcome:
    return _leased(job, command) or ("OK", None)


def _finished(job: Job, command: Command) -> Outcome:
    word = job.state.word
    if job.state is State.FINISHED:
        return "OK", None
    if job.state is State.DELETED:
        return "NOT_FOUND", word
    if not job.deliveries:
        return "NOT_RESERVED", word
    return ("STALE_LEASE", word) if command.get("lease", job.lease) != job.lease else ("OK", None)


def _deleted(job: Job, command: Command) -> Outcome:
    return ("WRONG_STATE", "finished") if job.state is State.FINISHED else ("OK", None)


def _pending(job: Job, command: Command) -> Outcome:
    word = job.state.word
    if job.state is State.DELETED:
        return "NOT_FOUND", word
    if job.state is State.RESERVED:
        return "RESERVED", word
    if job.state not in (State.DELAYED, State.READY):
        return "WRONG_STATE", word
    is_late = job.state is State.READY and (command["command"] == "run" or {"delay", "at"} & {*command})
    return ("TOO_LATE", word) if is_late else ("OK", None)


def _taken(job: Job, command: Command) -> Outcome:
    code = {State.DELETED: "NOT_FOUND", State.RESERVED: "RESERVED", State.FINISHED: "WRONG_STATE"}.get(job.state, "OK")
    return code, None if code == "OK" else job.state.word


def _kicked(job: Job, command: Command) -> Outcome:
    if job.state is State.DEAD:
        return "OK", None
    return "NOT_FOUND" if job.state is State.DELETED else "WRONG_STATE", job.state.word


_OF_ONE: dict[str, Callable[[Job, Command], Outcome]] = {
    **{"finish": _finished, "delete": _deleted, "touch": _changed, "release": _changed, "bury": _changed},
    **{
        "run": _pending,
        "update": _pending,
        "pop": _taken,
        "kick": _kicked,
        "get": lambda job, command: ("OK", None),
        "explain": lambda job, command: ("OK", None),
    },
}


def may_have_changed(job_id: str, old: Job | None, new: Job | None, asked: list[tuple[Scope, Command]]) -> bool:
    """Whether commands of tokens may have made of one job the other: one of them, or one that ended it and another that
    made a new one of its id."""
    if any(may_change(job_id, old, new, *each) for each in asked):
        return True
    ended = any(may_change(job_id, old, None, *each) for each in asked)
    adds = [each for each in asked if each[1]["command"] == "add"]
    return bool(old and new) and ended and any(may_change(job_id, None, new, *each) for each in adds)


def may_change(job_id: str, old: Job | None, new: Job | None, scope: Scope, command: Command) -> bool:
    """Whether a command of a token may have made of one job the other."""
    if command["command"] not in CHANGES or scope.refusal(command):
        return False
    chosen = job_id.rpartition("@")[2] if command.get("topic") in VIRTUAL else ""  # by who runs the service
    known = all(job is None or job.topic == chosen or scope.reaches(job.topic) for job in (old, new))
    if job_id in ids_of(command):
        return known
    return known and "id" not in command and old is not None and old.topic in topics_of(command)


def may_have_scheduled(name: str, before: Snapshot, after: Snapshot, asked: list[tuple[Scope, Command]]) -> bool:
    """Whether commands of tokens may have made of one schedule the other."""
    topics = [now.schedules[name][0] for now in (before, after) if name in now.schedules]
    return any(
        command["command"] in ("schedule", "unschedule")
        and command["name"] == name
        and not scope.refusal(command)
        and all(map(scope.reaches, topics))
        for scope, command in asked
    )


def may_touch(topic: str, scope: Scope, command: Command) -> bool:
    """Whether a command of a token may change the figures of a topic."""
    if command["command"] not in CHANGES or scope.refusal(command):
        return False
    return scope.reaches(topic) or topic in VIRTUAL.get(command.get("topic", ""), ())
