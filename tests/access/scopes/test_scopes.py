"""Three tokens with overlapping topics against the model: no command changes or reveals anything out of their reach,
and what is within it they do as anybody would.

There are a fifth of TEST_MODEL_STEPS steps (800 without it, 2,000 in the group faults). TEST_MODEL_SEED repeats
a run.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from buckets.job import LIVE, State
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.access.scopes.scope_commands import (
    FAR_S,
    IDS,
    NO_OPERATIONS_ID,
    NO_TOKENS_ID,
    TOPICS,
    WORKERS,
    World,
    make,
    variant,
)
from tests.access.scopes.scope_model import (
    BY_ID,
    VIRTUAL,
    Answer,
    Command,
    Scope,
    Snapshot,
    ids_of,
    may_have_changed,
    may_have_scheduled,
    may_touch,
    outcome,
    snapshot,
    topics_of,
)
from tests.kit.guarded import Guarded, bearer, guarded
from tests.kit.waiting import until

STEPS = int(os.environ.get("TEST_MODEL_STEPS", "4000")) // 5
_LONG = "TEST_MODEL_STEPS" in os.environ
SEED = int(os.environ.get("TEST_MODEL_SEED", random.randrange(2**32) if _LONG else 1))

WIDE = Scope("wide-admin", ("admin",))
NARROW = (
    Scope("narrow-admin", ("admin",), ("alpha-*", "charlie", "fan-out")),
    Scope("own-ids", ("produce", "consume", "look", "bodies"), ("*-one", "fan-in"), own_ids=True),
    Scope("without-bodies", ("produce", "consume", "look", "operate"), ("bravo-*", "c*", "fan-in")),
)
SCOPES = (WIDE, *NARROW)
OTHERS = 130  # topics that none of the narrow ones reaches, so that a listing has several pages

_SETTINGS = "\n".join(
    [
        *(f"default_backoff_s = [{FAR_S}]", f"default_retention_s = {FAR_S}", "idle_topic_s = 100000", "shards = %d"),
        "metrics_topics = 1000",
        "[virtual_topics]",
        *(f"{name} = {json.dumps(targets)}" for name, targets in VIRTUAL.items()),
    ]
)
Request = tuple[Scope, list[Command], bool]
"""Who asks for what, and whether it is an array."""
Told = tuple[int, list[Answer], str]
"""Status, answers, and the text of them."""


class Run:
    """The steps of a run, and what was seen in them."""

    def __init__(self, service: Guarded, redis: Redis, pool: Pool, seed: int) -> None:
        self.service = service
        self.redis = redis
        self.pool = pool
        self.world = World(random.Random(seed))
        self.done: Counter[tuple[str, str]] = Counter()
        """Commands that succeeded, by token and form."""
        self.kept_out: Counter[tuple[str, str]] = Counter()
        """Commands about jobs out of reach."""
        self._sessions: dict[tuple[str, bool], aiohttp.ClientSession] = {}
        self._unknown: dict[tuple[str, str, bool], Any] = {}
        self._secrets: list[str] = []
        self._made: dict[str, Scope] = {}

    async def open(self) -> None:
        """Make the tokens, and the topics that only the widest one reaches."""
        for scope in SCOPES:
            issued = await self.service.token(
                *scope.rights, name=scope.name, topics=[*scope.topics], own_ids=scope.own_ids, expires="never"
            )
            self.world.tokens[issued.record.id] = scope
            for plain in (True, False):
                headers = bearer(issued) | ({} if plain else {"Sec-Fetch-Site": "none"})
                self._sessions[scope.name, plain] = aiohttp.ClientSession(headers=headers)
        names = [f"zulu-{number:03}" for number in range(OTHERS)]
        adds = [{"command": "add", "topic": name, "id": name, "body": name, "delay": FAR_S} for name in names]
        _, answers, _ = await self.ask(WIDE, adds, is_array=True)
        assert all(answer["success"] for answer in answers)
        self.world.now = await self.look()

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()

    async def look(self) -> Snapshot:
        """What Redis holds now."""
        return await snapshot(self.redis, self.pool.keys, [*IDS, *self.world.made_ids], TOPICS)

    async def ask(self, scope: Scope, commands: list[Command], *, is_array: bool, plain: bool | None = None) -> Told:
        """Send a request, the short way or the long one."""
        plain = self.world.chance(0.6) if plain is None else plain
        session = self._sessions[scope.name, plain]
        data = json.dumps(commands if is_array else commands[0]).encode()
        async with session.post(f"{self.service.url}/command", data=data) as answer:
            text = await answer.text()
        read = json.loads(text)
        assert isinstance(read, list) is is_array, text
        answers = read if is_array else [read]
        assert len(answers) == len(commands)
        return answer.status, answers, text

    # Steps.

    async def step(self) -> None:
        """One step: a command, an array, requests at the same moment, or pops that wait."""
        kind = self.world.rng.choices(["one", "array", "together", "waiting"], [66, 18, 15, 1])[0]
        if kind == "waiting":
            await self._waiting()
            return
        if kind == "one":
            scope, name = self._scope(), ""
            if self.missing and self.world.chance(0.15):
                scope, name = self.world.rng.choice(self.missing)
            requests: list[Request] = [(scope, [make(self.world, scope, name)], self.world.chance(0.2))]
        elif kind == "array":
            requests = [self._array(self._scope(), self.world.rng.randint(2, 6), set())]
        else:
            used: set[str] = set()
            requests = [self._together(used) for _ in range(self.world.rng.randint(2, 4))]
        await self._carry_out(requests)
        if len(self.world.made_ids) > 12 or self.world.chance(0.01):
            await self._tidy()

    def _scope(self) -> Scope:
        return self.world.rng.choices(SCOPES, [2, 3, 3, 3])[0]

    @property
    def missing(self) -> list[tuple[Scope, str]]:
        """The tokens, and those of their commands that were not yet done in each form."""
        return [
            (scope, form.split()[0]) for scope in SCOPES for form in forms(scope) if not self.done[scope.name, form]
        ]

    def _array(self, scope: Scope, size: int, used: set[str], names: Sequence[str] = ()) -> Request:
        """Commands about different jobs, so that none depends on another one."""
        commands: list[Command] = []
        for _ in range(size):
            command = make(self.world, scope, self.world.rng.choice(names) if names else "")
            if command["command"] != "token" and not used & {*ids_of(command)}:
                used |= {*ids_of(command)}
                commands.append(command)
        return scope, commands or [{"command": "whoami"}], True

    def _together(self, used: set[str]) -> Request:
        """What shares scripts with the requests of others."""
        names = ["finish", "add", "delete", "touch", "get", "pop"]
        scope, commands, _ = self._array(self._scope(), self.world.rng.randint(1, 3), used, names)
        is_array = len(commands) > 1 or self.world.chance(0.3)
        return scope, commands, is_array

    async def _carry_out(self, requests: list[Request]) -> None:
        before = self.world.now
        told = await asyncio.gather(*(self.ask(scope, commands, is_array=many) for scope, commands, many in requests))
        operations = {**self.world.operations}
        for (scope, commands, _), (_, answers, _) in zip(requests, told, strict=True):
            for command, answer in zip(commands, answers, strict=True):
                self._learn(scope, command, answer)
        after = self.world.now = await self.look()
        try:
            self._check_changes(requests, before, after)
            for (scope, commands, is_array), (status, answers, text) in zip(requests, told, strict=True):
                shown = _news(scope, text)
                self._check_secrecy(scope, commands, shown, before, after, _added(scope, requests))
                alone = len(requests) == len(commands) == 1
                for command, answer in zip(commands, answers, strict=True):
                    others = [(who, each) for who, some, _ in requests for each in some if each is not command]
                    self._check(scope, command, answer, before, _disturbed(others))
                    if command["command"] == "operation":
                        self._check_operation(scope, command, answer, operations)
                    if alone:
                        await self._check_whole(scope, command, answer, before, after)
                    await self._check_kept_out(scope, command, answer, before, 0 if is_array else status)
        except AssertionError as error:
            asked = [(scope.name, commands) for scope, commands, _ in requests]
            raise AssertionError(f"{error}\nrequests: {asked}\nanswers: {[each for _, _, each in told]}") from error

    def _learn(self, scope: Scope, command: Command, answer: Answer) -> None:
        """Remember what later commands may use."""
        if not answer["success"]:
            return
        if command["command"] == "add" and "id" not in command:
            self.world.made_ids.append(answer["id"])
        if answer.get("cursor"):
            known = self.world.cursors[command["command"]]
            known.append(answer["cursor"])
            del known[:-20]
        if command.get("do") == "plan" or (command["command"] == "find" and "operation" in answer):
            self.world.operations[answer["operation"]] = scope
        elif command.get("do") == "cancel":
            del self.world.operations[command["operation"]]
        action = command.get("action")
        if action == "create":
            made = self._made[answer["id"]] = Scope(answer["name"], (), (*answer["topics"],))
            self.world.made_tokens[answer["id"]] = made
            self._secrets.append(answer["token"])
        elif action == "revoke":
            del self.world.made_tokens[command["id"]]

    async def _tidy(self) -> None:
        """Let no more jobs be made than are looked at, nor all be ended or paused."""
        ids = self.world.made_ids[:]
        commands: list[Command] = [{"command": "delete", "id": job_id} for job_id in ids]
        commands += [{"command": "resume", "topic": topic} for topic in TOPICS]
        await self.ask(WIDE, commands, is_array=True)
        self.world.now = await self.look()
        self.world.made_ids = [job_id for job_id in ids if job_id in self.world.now.jobs]

    async def _waiting(self) -> None:
        """A worker waits, another one of its name leaves, and only where that is the same token's the wait ends."""
        poppers = [scope for scope in SCOPES if "pop" in scope.commands]
        scope, other = self.world.rng.choice(poppers), self.world.rng.choice(poppers)
        free = [topic for topic in TOPICS if scope.reaches(topic) and not self.world.now.of(topic, State.READY)]
        if not free:
            return
        worker, topic = self.world.rng.choice(WORKERS), self.world.rng.choice(free)
        pop = {"command": "pop", "topic": topic, "wait": 50, "worker": worker}
        leave = {"command": "leave", "worker": worker}
        task = asyncio.create_task(self.ask(scope, [pop], is_array=False))
        await until(lambda: self.service.service.parked(1))
        await self.ask(other, [leave], is_array=False)
        if other is scope or "kick" in other.commands:
            await task
        else:
            for _ in range(3):
                await self.ask(scope, [{"command": "whoami"}], is_array=False)
            assert not task.done(), f"{other.name} ended a pop of {scope.name}"
            _, (shown,), _ = await self.ask(scope, [{"command": "workers", "topic": topic}], is_array=False)
            if len(self.pool.keys) == 1:  # of another process, it is known two seconds later
                assert any(row["worker"] == worker for row in shown["workers"])
            await self.ask(scope, [leave], is_array=False)
        _, (answer,), _ = await task
        assert answer["success"] and answer["id"] is None
        self.done[scope.name, "pop waiting"] += 1
        self.done[other.name, "leave"] += 1
        self.world.now = await self.look()

    # Checks.

    def _check_changes(self, requests: list[Request], before: Snapshot, after: Snapshot) -> None:
        """What changed was reached by someone who asked for it."""
        asked = [(scope, command) for scope, commands, _ in requests for command in commands]
        for job_id in {*before.jobs, *after.jobs}:
            old, new = before.jobs.get(job_id), after.jobs.get(job_id)
            if (old and old.raw) == (new and new.raw) or (old is None and job_id in self.world.made_ids):
                continue
            assert may_have_changed(job_id, old, new, asked), f"{job_id} changed: {old} {new}"
        for name in {*before.schedules, *after.schedules}:
            if before.schedules.get(name) != after.schedules.get(name):
                assert may_have_scheduled(name, before, after, asked), f"the schedule {name} changed"
        for topic in TOPICS:
            if before.paused.get(topic) != after.paused.get(topic):
                pausing = [each for each in asked if each[1].get("topic") == topic and may_touch(topic, *each)]
                assert any(each["command"] in ("pause", "resume") for _, each in pausing), f"{topic} is or was paused"
            if before.counts.get(topic) != after.counts.get(topic):
                assert any(may_touch(topic, *each) for each in asked), f"the figures of {topic} changed"

    def _check_secrecy(
        self,
        scope: Scope,
        commands: list[Command],
        text: str,
        before: Snapshot,
        after: Snapshot,
        added: Sequence[str] = (),
    ) -> None:
        """No answer names what is out of reach, unless the request does. `added`: texts of jobs within reach that may
        have come and gone meanwhile."""
        if not scope.topics:
            return
        text += _decoded(text)
        jobs = [*before.jobs.values(), *after.jobs.values()]
        known = {text for job in jobs if scope.reaches(job.topic) for text in (job.id, job.body.decode())}
        hidden = {text for job in jobs if not scope.reaches(job.topic) for text in (job.id, job.body.decode())}
        if any(each["command"] == "health" for each in commands):  # of 5 s ago: the ids may be those of others by now
            hidden.clear()
            known |= {*IDS}  # some have the names of topics in them
        for name, (topic, body) in (*before.schedules.items(), *after.schedules.items()):
            (known if scope.reaches(topic) else hidden).update((name, body))
        known |= {*added} | {topic for topic in TOPICS if scope.reaches(topic)}
        hidden |= {topic for topic in (*TOPICS, *VIRTUAL) if not scope.reaches(topic)} | {"zulu"}
        hidden |= {each.name for each in NARROW if each is not scope} if commands[0]["command"] == "token" else set()
        if not any(each in text for each in hidden - known if each):
            return
        for command in commands:
            known |= {*_strings(command)}
            if command["command"] == "add" and command["topic"] in VIRTUAL and not scope.refusal(command):
                known |= {*ids_of(command), *VIRTUAL[command["topic"]]}
        for each in sorted(known, key=len, reverse=True):
            text = text.replace(each or "\0", "\0")
        found = [each for each in hidden - known if each and each in text]
        assert not found, f"the answer names {found}"

    def _check(self, scope: Scope, command: Command, answer: Answer, before: Snapshot, disturbed: set[str]) -> None:
        """An answer against the model, as far as other commands of the same moment leave it certain."""
        code = "OK" if answer["success"] else answer["code"]
        refusal = scope.refusal(command)
        if refusal is not None:
            assert code == "FORBIDDEN", f"{code} for {command}"
            assert all(answer[name] == value if value else answer[name] for name, value in refusal.items())
            assert "topic" not in answer or answer["topic"] in topics_of(command)
            self.kept_out[scope.name, variant(command)] += 1
            return
        expected = outcome(command, scope, before)
        touched = {job.topic for job_id in ids_of(command) if (job := before.jobs.get(job_id))} | {*topics_of(command)}
        if expected is not None and not touched & disturbed:
            assert (code, answer.get("state") if code != "OK" else None) == expected, f"{expected} for {command}"
        if expected is None and "cursor" not in command and command["command"] not in ("token", "operation"):
            assert code == "OK", f"{code} for {command}"
        if code == "OK":
            self.done[scope.name, variant(command)] += 1
            if command["command"] in ("get", "peek", "schedules"):
                shows = command.get("body", scope.sees_bodies)
                shown = next((answer[rows] for rows in ("jobs", "schedules") if rows in answer), [answer])
                assert all(("value" in each) is shows for each in shown)

    def _check_operation(self, scope: Scope, command: Command, answer: Answer, operations: dict[str, Scope]) -> None:
        """A token sees and steers what was planned with its own topics; one without topics everything."""
        if scope.refusal(command) is not None:
            return
        known = operations | self.world.operations
        hidden = {each for each, other in known.items() if scope.topics and other.topics != scope.topics}
        if command["do"] == "list":
            assert not hidden & {row["operation"] for row in answer["operations"]}
        elif command["do"] == "plan":
            assert answer["success"], answer
        elif (command.get("plan") or command["operation"]) in hidden | {NO_OPERATIONS_ID}:
            assert answer["code"] == "NOT_FOUND", answer
            self.kept_out[scope.name, variant(command)] += 1
        else:
            assert answer["success"] or answer["code"] == "WRONG_STATE", answer
            assert answer["success"] is (command["do"] == "get") or command["do"] != "start"

    async def _check_kept_out(
        self, scope: Scope, command: Command, answer: Answer, before: Snapshot, status: int
    ) -> None:
        """A command about a job out of reach is answered as for an id that nobody has."""
        plan = before.schedules.get(command.get("name", ""))
        if plan and "right" not in (scope.refusal(command) or {}) and not scope.reaches(plan[0]):
            self.kept_out[scope.name, variant(command)] += 1
        olds = [job for job_id in ids_of(command) if (job := before.jobs.get(job_id))]
        if not olds or scope.refusal(command) or all(scope.reaches(job.topic) for job in olds):
            return
        name = command["command"]
        self.kept_out[scope.name, variant(command)] += 1
        if name == "add":  # of which `_check` knows all
            return
        key = (scope.name, variant(command), bool(status))
        if key not in self._unknown or self.world.chance(0.1):
            asked = {**command, "id": "idnobody"}
            unknown_status, (unknown,), _ = await self.ask(scope, [asked], is_array=not status)
            assert unknown.pop("id") == "idnobody"
            self._unknown[key] = (unknown_status if status else 0, [*unknown.items()])
        rest = {**answer}
        assert rest.pop("id") == command["id"]
        assert self._unknown[key] == (status, [*rest.items()]), f"not as for an unknown id: {command}"

    async def _check_whole(
        self, scope: Scope, command: Command, answer: Answer, before: Snapshot, after: Snapshot
    ) -> None:
        """The answer to a command that nothing else happened beside."""
        name = command["command"]
        if name == "token":
            await self._check_token(scope, command, answer)
        if not answer["success"]:
            return
        if name in _WHOLE:
            _WHOLE[name](scope, command, answer, before, after, len(self.pool.keys))
        elif name == "topics" and "cursor" not in command:
            await self._check_listing(scope, command, answer, before)
        elif name == "schedules" and "cursor" not in command:
            await self._check_schedules(scope, command, answer, before)
        elif name in BY_ID and "state" in answer and command["id"] in after.jobs:
            assert after.jobs[command["id"]].state.word == answer["state"]
        elif name == "token" and command["action"] == "list":
            listed = {each["id"] for each in answer["tokens"]}
            for token_id, other in (self.world.tokens | self.world.made_tokens).items():
                assert (token_id in listed) is (other is scope or _is_below(other, scope))

    async def _check_token(self, scope: Scope, command: Command, answer: Answer) -> None:
        """A token with topics makes, sees and ends only those that reach no other topic."""
        if "token" not in scope.commands or command["action"] == "list":
            return
        if command["action"] == "create":
            assert answer["success"] is _is_below(Scope("", (), (*command["topics"],)), scope)
            return
        other = (self._made | self.world.tokens).get(command["id"])
        if other is not None and _is_below(other, scope):
            assert answer["success"]
        else:
            asked = {**command, "id": NO_TOKENS_ID}
            _, (unknown,), _ = await self.ask(scope, [asked], is_array=False)
            assert [*answer.items()] == [*{**unknown, "id": command["id"]}.items()]

    async def _check_listing(self, scope: Scope, command: Command, answer: Answer, before: Snapshot) -> None:
        """All pages of a listing have all topics within reach, and no others."""
        rows, end = answer["topics"], answer["cursor"]
        while end:
            _, (answer,), text = await self.ask(scope, [{**command, "cursor": end}], is_array=False)
            self._check_secrecy(scope, [command], text, before, before)
            rows, end = rows + answer["topics"], answer["cursor"]
        wanted = Scope("", (), (command.get("pattern", "*"),))
        expected = {topic for topic in before.topics if scope.reaches(topic) and wanted.reaches(topic)}
        assert {row["topic"] for row in rows} == expected
        for row in rows:
            if row["topic"] in TOPICS:
                assert {word: n for word, n in row["counts"].items() if n} == before.live(row["topic"])
                assert row["paused"] is (row["topic"] in before.paused)

    async def _check_schedules(self, scope: Scope, command: Command, answer: Answer, before: Snapshot) -> None:
        """All pages of a listing have all schedules within reach, and no others."""
        rows, end = answer["schedules"], answer["cursor"]
        while end:
            _, (answer,), text = await self.ask(scope, [{**command, "cursor": end}], is_array=False)
            self._check_secrecy(scope, [command], text, before, before)
            rows, end = rows + answer["schedules"], answer["cursor"]
        wanted = Scope("", (), (command.get("pattern", "*"),))
        reached = {name: topic for name, (topic, _) in before.schedules.items() if scope.reaches(topic)}
        expected = {name: topic for name, topic in reached.items() if wanted.reaches(name)}
        assert {row["name"]: row["topic"] for row in rows} == expected


def _is_below(other: Scope, scope: Scope) -> bool:
    """Whether a token reaches no topic that another one does not, as far as these tests make them."""
    return not scope.topics or all(topic in scope.topics or scope.reaches(topic) for topic in other.topics or ("*",))


def _added(scope: Scope, requests: list[Request]) -> list[str]:
    """The ids and bodies of jobs that requests added to topics within reach."""
    adds = [each for _, commands, _ in requests for each in commands if each["command"] == "add"]
    return [
        text
        for each in adds
        if any(map(scope.reaches, VIRTUAL.get(each["topic"], (each["topic"],))))
        for text in (*ids_of(each), each.get("body", ""))
    ]


def _disturbed(asked: list[tuple[Scope, Command]]) -> set[str]:
    """The topics of which commands take jobs that they do not name."""
    some = [each for scope, each in asked if "id" not in each and not scope.refusal(each)]
    names = ("pop", "purge", "kick")
    return {topic for each in some if each["command"] in names for topic in topics_of(each)}


def _news(scope: Scope, text: str) -> str:
    """The text of answers, but for the log of what the token did itself, and the ids that an operation met when it was
    planned, which may be those of others by now."""
    if '"actions":' not in text and '"samples":' not in text:
        return text
    read = json.loads(text)
    for each in read if isinstance(read, list) else [read]:
        if "plan" not in each:
            each.pop("samples", None)
        each["actions"] = [row for row in each.get("actions", []) if row["actor"] != scope.name]
    return json.dumps(read)


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _strings(part)]


def _decoded(text: str) -> str:
    """What the cursors in an answer say."""
    read = json.loads(text)
    cursors = [each.get("cursor") for each in (read if isinstance(read, list) else [read])]
    raws = [base64.urlsafe_b64decode(each + "=" * (-len(each) % 4)) for each in cursors if each]
    return "".join(raw.decode("utf-8", "replace") for raw in raws)


def _whole_pop(scope: Scope, command: Command, answer: Answer, before: Snapshot, after: Snapshot, shards: int) -> None:
    jobs = answer["jobs"] if "count" in command else [answer] if answer["id"] else []
    if "id" in command:
        return
    ready = {
        job.id for topic in topics_of(command) if topic not in before.paused for job in before.of(topic, State.READY)
    }
    assert {job["id"] for job in jobs} <= ready
    assert all(job["value"] is not None for job in jobs)
    if shards == 1:
        assert len(jobs) == min(command.get("count", 1), len(ready))


def _whole_purge(
    scope: Scope, command: Command, answer: Answer, before: Snapshot, after: Snapshot, shards: int
) -> None:
    states = [State[command["state"].upper()]] if "state" in command else LIVE
    if "cursor" not in command:
        assert answer["count"] == len(before.of(command["topic"], *states))
        assert not after.of(command["topic"], *states)


def _whole_kick(scope: Scope, command: Command, answer: Answer, before: Snapshot, after: Snapshot, shards: int) -> None:
    if "topic" in command:
        assert answer["count"] == min(command.get("count", 1), len(before.of(command["topic"], State.DEAD)))


def _whole_peek(scope: Scope, command: Command, answer: Answer, before: Snapshot, after: Snapshot, shards: int) -> None:
    if "topic" not in command:
        return
    states = [State[command["state"].upper()]] if "state" in command else LIVE
    prefix = command.get("prefix", "")
    expected = {job.id for job in before.of(command["topic"], *states) if job.id.startswith(prefix)}
    seen = {job["id"] for job in answer["jobs"]}
    assert seen <= expected
    if "cursor" not in command and not answer["cursor"]:
        assert seen == expected


def _whole_operation(
    scope: Scope, command: Command, answer: Answer, before: Snapshot, after: Snapshot, shards: int
) -> None:
    if answer.get("state") != "planned" or command["do"] != "plan":
        return
    wanted = command["filter"]
    state = {"kick": "dead", "run": "delayed", "reschedule": "delayed"}.get(command["kind"], wanted.get("state"))
    states = [State[state.upper()]] if state else LIVE
    reached = Scope("", (), (wanted["topic"],))
    jobs = [
        job for topic in TOPICS if scope.reaches(topic) and reached.reaches(topic) for job in before.of(topic, *states)
    ]
    count = sum(job.id.startswith(wanted.get("prefix", "")) for job in jobs)
    if wanted["topic"] == "*" and not scope.topics and "prefix" not in wanted and State.DELAYED in states:
        count += OTHERS
    assert answer["count"] == count


def _whole_stats(
    scope: Scope, command: Command, answer: Answer, before: Snapshot, after: Snapshot, shards: int
) -> None:
    topics = [topic for topic in TOPICS if scope.reaches(topic) and command.get("topic", topic) == topic]
    sums: Counter[str] = sum((Counter(before.counts.get(topic, {})) for topic in topics), Counter())
    if "topic" not in command and not scope.topics:
        sums += Counter({"created": OTHERS, "delayed": OTHERS})
    told: Counter[str] = Counter(answer["counts"]) + Counter(answer["totals"])
    assert told == +sums
    assert sum(answer["due"].values()) == sums["delayed"]


def _whole_forecast(
    scope: Scope, command: Command, answer: Answer, before: Snapshot, after: Snapshot, shards: int
) -> None:
    """(Its numbers may be those of five seconds ago.)"""
    reached = [topic for topic in TOPICS if scope.reaches(topic) and command.get("topic", topic) == topic]
    assert "topic" in command or not scope.topics or answer["topics"] <= len(reached)


def _whole_workers(
    scope: Scope, command: Command, answer: Answer, before: Snapshot, after: Snapshot, shards: int
) -> None:
    assert all(row["topics"] and all(map(scope.reaches, row["topics"])) for row in answer["workers"])
    assert not scope.topics or answer["others"] == {"parked": 0, "jobs": 0}


def _whole_resume(
    scope: Scope, command: Command, answer: Answer, before: Snapshot, after: Snapshot, shards: int
) -> None:
    assert answer["was_paused"] is (command["topic"] in before.paused)
    assert command["topic"] not in after.paused


def _whole_whoami(
    scope: Scope, command: Command, answer: Answer, before: Snapshot, after: Snapshot, shards: int
) -> None:
    assert (answer["name"], tuple(answer["topics"])) == (scope.name, scope.topics)


_WHOLE = {
    **{"pop": _whole_pop, "purge": _whole_purge, "kick": _whole_kick, "peek": _whole_peek, "stats": _whole_stats},
    **{"forecast": _whole_forecast, "find": _whole_peek, "workers": _whole_workers, "resume": _whole_resume},
    **{"operation": _whole_operation, "whoami": _whole_whoami},
}


@asynccontextmanager
async def running(seed: int, *, workers: int = 1, shards: int = 1) -> AsyncIterator[Run]:
    """A run against a service of its own."""
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        folder = Path(name)
        async with guarded(folder, settings=_SETTINGS % shards, workers=workers) as service:
            redis = Redis(f"unix://{folder}/redis.sock")
            pool = await Pool.open(redis)
            run = Run(service, redis, pool, seed)
            try:
                await run.open()
                yield run
            finally:
                await run.close()
                await pool.close()
                await redis.close()


async def steps(run: Run, number: int) -> None:
    for step in range(number):
        try:
            await run.step()
        except AssertionError as error:
            raise AssertionError(f"step {step}: {error}") from error
    assert "INTERNAL" not in run.service.log
    assert not any(secret in run.service.log for secret in run._secrets)


def forms(scope: Scope) -> list[str]:
    """What a token must have done in a long enough run: each form of each of its commands."""
    forms = {
        "add": {f"add {how}" for how in ("keep", "reject", "renew", "replace", "later", "sooner", "virtual")},
        "pop": {"pop topic", "pop topics", "pop id", "pop waiting"},
        "kick": {"kick topic", "kick id"},
        "stats": {"stats ", "stats topic"},
        "workers": {"workers ", "workers topic"},
        "token": {f"token {action}" for action in ("create", "list", "show", "test", "rotate", "revoke")},
        "operation": {f"operation {do}" for do in ("plan", "list", "get", "cancel")},
    }
    return sorted({form for name in scope.commands for form in forms.get(name, {name})})


def untried(run: Run) -> set[tuple[str, str]]:
    """What each narrow token has yet to try on jobs out of its reach."""
    forms = {*BY_ID, "schedule", "unschedule", "pop id", "kick id", "add replace", "pop topic", "peek"}
    return {(scope.name, form) for scope in NARROW for form in forms} - {*run.kept_out}


@pytest.mark.timeout(7200 if _LONG else 1200)
async def test_no_token_changes_or_learns_of_anything_out_of_its_reach() -> None:
    print(f"TEST_MODEL_SEED={SEED}")
    async with running(SEED) as run:
        await steps(run, STEPS - STEPS // 8)
        print({key: run.done[key] for key in sorted(run.done)})
        print({key: run.kept_out[key] for key in sorted(run.kept_out)})
        if STEPS >= 2000:
            for _ in range(10):  # which commands find which jobs depends on their times, too
                if run.missing or untried(run):
                    await steps(run, 300)
            assert not run.missing
            assert not untried(run)


async def test_neither_does_one_of_several_processes_and_shards() -> None:
    print(f"TEST_MODEL_SEED={SEED}")
    async with running(SEED + 1, workers=2, shards=3) as run:
        await steps(run, STEPS // 8)
        assert sum(run.done.values()) > STEPS // 20
        assert sum(run.kept_out.values()) > STEPS // 40
