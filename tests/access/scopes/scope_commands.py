"""Random commands, one maker for each command of the protocol, for test_scopes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jobqueue.schema import params
from jobqueue.schema.checks import KEEPS_BODY
from tests.access.scopes.scope_model import VIRTUAL, Command, Scope, Snapshot

TOPICS = ("alpha-one", "alpha-two", "bravo-one", "bravo-two", "charlie", "delta")
_PREFIXED = [f"{topic}:{letter}" for topic in TOPICS[:5] for letter in "vw"]
_BASES = ["idyyyy", "fan-out:v", "fan-in:v"]
_OWN = [f"{topic}:own" for topic in VIRTUAL]  # that tokens with ids of their own add: nobody else has one in their way
_COPIES = [f"{base}@{topic}" for base in (*_BASES, *_OWN) for topics in VIRTUAL.values() for topic in topics]
IDS = (*(f"id{letter * 4}" for letter in "abcdefgh"), *_PREFIXED, *_COPIES)
NAMES = (*(f"plan{letter * 4}" for letter in "abcd"), *(f"{topic}:plan" for topic in TOPICS[:5]))
FAR_S = 50_000  # nothing falls due, ends its lease or is forgotten during a run
STATES = ("delayed", "ready", "reserved", "dead")
NO_TOKENS_ID = "unknown0"
NO_OPERATIONS_ID = "0123456789ab"
WORKERS = ("worker-1", "worker-2")


@dataclass
class World:
    """What makers choose from."""

    rng: random.Random
    now: Snapshot = field(default_factory=Snapshot)
    made_ids: list[str] = field(default_factory=list)
    """Of jobs that were added without one."""
    cursors: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """That any token got, by command."""
    tokens: dict[str, Scope] = field(default_factory=dict)
    """By id, those that commands are given with."""
    made_tokens: dict[str, Scope] = field(default_factory=dict)
    """By id, those that commands made."""
    operations: dict[str, Scope] = field(default_factory=dict)
    """By id, who planned them."""
    number: int = 0

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def some(self, share: float, **fields: Any) -> dict[str, Any]:
        """Each field with this chance."""
        return {name: value for name, value in fields.items() if self.chance(share)}

    def body(self) -> str:
        self.number += 1
        return f"body{self.number:08}"

    def id(self) -> str:
        """Mostly one that exists."""
        if self.now.jobs and self.chance(0.8):
            return self.rng.choice([*self.now.jobs])
        return self.rng.choice([*IDS, *self.made_ids])

    def topic(self, scope: Scope, *, reached: float = 0.6) -> str:
        """Often one that the token reaches."""
        own = [topic for topic in TOPICS if scope.reaches(topic)]
        return self.rng.choice(own if self.chance(reached) else TOPICS)

    def lease(self, job_id: str) -> dict[str, int]:
        """None, the newest, or a wrong one."""
        job = self.now.jobs.get(job_id)
        kind = self.rng.choice(["none", "none", "newest", "newest", "newest", "wrong"])
        if kind == "none" or job is None:
            return {}
        return {"lease": job.lease if kind == "newest" else max(job.lease - 1, 1)}

    def cursor(self, command: str) -> dict[str, str]:
        """Sometimes one that an earlier answer gave, to whichever token."""
        known = self.cursors[command]
        return {"cursor": self.rng.choice(known)} if known and self.chance(0.25) else {}

    def name(self) -> str:
        """Of a schedule, mostly one that there is."""
        known = [*self.now.schedules]
        return self.rng.choice(known if known and self.chance(0.7) else NAMES)


Maker = Callable[[World, Scope], Command]


def _add(world: World, scope: Scope) -> Command:
    rng = world.rng
    topic = rng.choice([*VIRTUAL]) if world.chance(0.12) else world.topic(scope)
    job_id = rng.choice(_BASES) if topic in VIRTUAL else rng.choice(IDS)
    if scope.own_ids and world.chance(0.7):
        job_id = f"{topic}:{rng.choice('vw' if topic not in VIRTUAL else ['v', 'own', 'own'])}"
    add = {
        **{
            "topic": topic,
            "body": world.body(),
            "ttr": rng.choice([FAR_S, FAR_S, FAR_S, 0]),
            "tries": rng.choice([1, 16]),
        },
        **({"id": job_id} if topic in VIRTUAL or world.chance(0.92) else {"retention": 0}),
        "retention": rng.choice([0, FAR_S]),
        "delay": rng.choice([0, 0, FAR_S]),
        "if_exists": rng.choice(["replace", "replace", "keep", "renew", "reject", "later", "sooner"]),
        **world.some(0.1, priority=rng.randrange(10), ttl=2 * FAR_S, tags=["tag"], headers={"name": "value"}),
        **world.some(0.02, durability="local"),
    }
    if add["if_exists"] in KEEPS_BODY and "id" in add and world.chance(0.5):
        del add["body"]
    return add


def _schedule(world: World, scope: Scope) -> Command:
    topic = world.rng.choice([*VIRTUAL]) if world.chance(0.12) else world.topic(scope)
    name = f"{topic}:plan" if scope.own_ids and world.chance(0.7) else world.rng.choice(NAMES)
    when: Command = world.rng.choice([{"every": 20 * FAR_S}, {"cron": "0 0 29 2 *", "zone": "Europe/Berlin"}])
    return {"name": name, "topic": topic, "body": world.body(), **when, **world.some(0.2, paused=True, tries=3)}


def _schedules(world: World, scope: Scope) -> Command:
    fields = world.some(0.3, pattern=world.rng.choice(["*", "plan*", "*:plan", "plan????", "zulu"]))
    return {**fields, **world.some(0.3, body=world.rng.choice([True, False])), **world.cursor("schedules")}


def _pop(world: World, scope: Scope) -> Command:
    rng = world.rng
    common = {**world.some(0.5, worker=rng.choice(WORKERS)), **world.some(0.2, ttr=FAR_S + 1)}
    kind = rng.choice(["topic", "topic", "topics", "id"])
    if kind == "id":
        return {"id": world.id(), **common}
    topics = rng.sample(TOPICS, 2)
    if world.chance(0.5):
        topics = [world.topic(scope, reached=0.9) for _ in "ab"]
    wanted: Command = {"topic": world.topic(scope)} if kind == "topic" else {"topics": list(dict.fromkeys(topics))}
    return {**wanted, **common, **world.some(0.3, count=rng.choice([1, 3])), **world.some(0.2, wait=0)}


def _of_lease(world: World, **fields: Any) -> Command:
    reserved = [job.id for job in world.now.jobs.values() if job.state.word == "reserved"]
    job_id = world.rng.choice(reserved) if reserved and world.chance(0.7) else world.id()
    return {"id": job_id, **world.lease(job_id), **fields}


def _release(world: World, scope: Scope) -> Command:
    fields = world.some(0.3, delay=world.rng.choice([0, FAR_S]), attempt=False, reason=f"reason{world.rng.random()}")
    return _of_lease(world, **fields)


def _pending(world: World, *words: str) -> str:
    """Mostly the id of a job in one of these states."""
    ids = [job.id for job in world.now.jobs.values() if job.state.word in words]
    return world.rng.choice(ids) if ids and world.chance(0.6) else world.id()


def _update(world: World, scope: Scope) -> Command:
    rng = world.rng
    fields = world.some(0.4, priority=rng.randrange(10), body=world.body(), ttl=3 * FAR_S)
    if world.chance(0.3) or not fields:
        fields["delay"] = rng.choice([0, FAR_S])
    return {"id": _pending(world, "delayed", "ready"), **fields}


def _kick(world: World, scope: Scope) -> Command:
    if world.chance(0.4):
        return {"topic": world.topic(scope), **world.some(0.5, count=3)}
    dead = [job.id for job in world.now.jobs.values() if job.state.word == "dead"]
    return {"id": world.rng.choice(dead) if dead and world.chance(0.7) else world.id()}


def _peek(world: World, scope: Scope) -> Command:
    rng = world.rng
    fields = world.some(0.4, state=rng.choice(STATES), count=rng.choice([1, 2, 100]))
    return {
        "topic": world.topic(scope),
        **fields,
        **world.some(0.3, body=rng.choice([True, False])),
        **world.cursor("peek"),
    }


def _find(world: World, scope: Scope) -> Command:
    job_id = world.id()
    if world.chance(0.2):
        return {"prefix": job_id[:2], **world.some(0.4, state=world.rng.choice(STATES))}
    fields = world.some(0.4, state=world.rng.choice(STATES), count=world.rng.choice([1, 2, 100]))
    return {
        "prefix": job_id[: world.rng.choice([1, 2, len(job_id)])],
        "topic": world.topic(scope),
        **fields,
        **world.cursor("find"),
    }


_TAKES = {"kick": "dead", "run": "delayed", "reschedule": "delayed"}


def _operation(world: World, scope: Scope) -> Command:
    """Any but a start that changes jobs, as that goes on after the answer."""
    rng = world.rng
    do = rng.choice(["plan", "plan", "list", "get", "get", "cancel", "cancel", "pause", "resume", "start"])
    if do == "list":
        return {"do": do}
    if do == "plan" and len(world.operations) < 20:
        kind = rng.choice(["kick", "delete", "run", "reschedule", "find"])
        wanted = {"topic": rng.choice([world.topic(scope), "*", "*-one"]), **world.some(0.3, prefix="id")}
        if kind not in _TAKES:
            wanted |= world.some(0.4, state=rng.choice(STATES))
        return {"do": do, "kind": kind, "filter": wanted, **({"shift": 60} if kind == "reschedule" else {})}
    name = rng.choice([*world.operations, NO_OPERATIONS_ID])
    if do == "start":
        return {"do": do, "plan": name, "expect": 1_000_000}
    return {"do": "cancel" if do == "plan" else do, "operation": name}


def _topics(world: World, scope: Scope) -> Command:
    patterns = ["*", "*-one", "zulu-*", "bravo-???", "?elta", "charlie"]
    return {**world.some(0.4, pattern=world.rng.choice(patterns)), **world.cursor("topics")}


def _purge(world: World, scope: Scope) -> Command:
    return {"topic": world.topic(scope), **world.some(0.6, state=world.rng.choice(STATES)), **world.cursor("purge")}


def _token(world: World, scope: Scope) -> Command:
    rng = world.rng
    action = rng.choice(["list", "list", "show", "test", "revoke", "rotate", "create"])
    if action == "list":
        return {"action": action}
    if action == "create" and len(world.made_tokens) < 3:
        topics = rng.choice([["alpha-one"], ["alpha-*", "charlie"], ["alpha-one", "bravo-one"], ["*"]])
        return {"action": action, "name": f"made-{world.body()}", "rights": ["look"], "topics": topics}
    others = [each for each, one in world.tokens.items() if one.name != scope.name] if scope.topics else []
    ids = [*world.made_tokens, *world.made_tokens, *others, NO_TOKENS_ID]
    more = {"test": {"right": "pop", "topic": "delta"}}.get(action, {})
    return {"action": "show" if action == "create" else action, "id": rng.choice(ids), **more}


def _actions(world: World, scope: Scope) -> Command:
    return {**world.some(0.3, count=world.rng.choice([1, 5])), **world.cursor("actions")}


MAKERS: dict[str, tuple[int, Maker]] = {
    "add": (14, _add),
    "schedule": (5, _schedule),
    "unschedule": (3, lambda world, scope: {"name": world.name()}),
    "schedules": (3, _schedules),
    "pop": (10, _pop),
    "finish": (5, lambda world, scope: _of_lease(world, **world.some(0.02, durability="local"))),
    "delete": (4, lambda world, scope: {"id": world.id()}),
    "touch": (4, lambda world, scope: _of_lease(world)),
    "release": (5, _release),
    "bury": (5, lambda world, scope: _of_lease(world, **world.some(0.3, reason="why"))),
    "leave": (1, lambda world, scope: {"worker": world.rng.choice(WORKERS)}),
    "kick": (4, _kick),
    "run": (4, lambda world, scope: {"id": _pending(world, "delayed")}),
    "update": (5, _update),
    "explain": (2, lambda world, scope: {"id": world.id(), **world.some(0.2, life="all")}),
    "get": (4, lambda world, scope: {"id": world.id(), **world.some(0.3, body=world.rng.choice([True, False]))}),
    "stats": (3, lambda world, scope: world.some(0.6, topic=world.topic(scope))),
    "forecast": (2, lambda world, scope: world.some(0.6, topic=world.topic(scope))),
    "figures": (2, lambda world, scope: world.some(0.6, topic=world.topic(scope))),
    "peek": (4, _peek),
    "find": (3, _find),
    "topics": (3, _topics),
    "workers": (2, lambda world, scope: world.some(0.5, topic=world.topic(scope))),
    "instances": (1, lambda world, scope: {}),
    "health": (1, lambda world, scope: {}),
    "pause": (2, lambda world, scope: {"topic": world.topic(scope), **world.some(0.3, seconds=FAR_S)}),
    "resume": (4, lambda world, scope: {"topic": world.topic(scope)}),
    "purge": (1, _purge),
    "operation": (4, _operation),
    "actions": (2, _actions),
    "token": (6, _token),
    "settings": (1, lambda world, scope: {}),
    "whoami": (1, lambda world, scope: {}),
}
"""How often each is given, and what makes it."""
assert MAKERS.keys() == params.BY_NAME.keys(), "a command without a maker is never tried"


def make(world: World, scope: Scope, name: str = "") -> Command:
    """A command; mostly one that the token has the right to."""
    if not name:
        names = [each for each in MAKERS if each in scope.commands or world.chance(0.1)]
        name = world.rng.choices(names, [MAKERS[each][0] for each in names])[0]
    return {"command": name, **MAKERS[name][1](world, scope)}


def variant(command: Command) -> str:
    """The command, and which of its forms."""
    name = command["command"]
    if name == "add":
        return f"add {command['if_exists']}" if command["topic"] not in VIRTUAL else "add virtual"
    if name == "token":
        return f"token {command['action']}"
    if name == "operation":
        return f"operation {command['do']}"
    if name == "find" and "topic" not in command:
        return "find everywhere"
    named = next((each for each in ("topics", "topic", "id") if each in command), "")
    return f"{name} {named}" if name in ("pop", "kick", "stats", "workers") else name
