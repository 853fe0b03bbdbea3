"""A made-up history for tests of the checker: an honest queue on its own clock, which can be made to lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.chaos.history import Event, numbered

EPOCH_S = 1_700_000_000.0
"""Redis's clock at second 0 of the machine's clock."""
TTR_S = 2.0
TOPIC = "t"
_STEP_S = 0.001  # between two events


@dataclass
class Tale:
    """What the queue knows about a job."""

    body: int
    due: float  # unix seconds, as is the end of its lease
    tries: int = 0
    state: str = "delayed"
    lease: int = 0
    until: float = 0.0  # reserved: the end of the lease; released: when it is due again
    attempt: int = 0
    created: float | None = None  # unix seconds, of an occurrence


class Fable:
    """Commands are done at `now` (s on the machine's clock), and each takes three milliseconds.

    With `heard` False the answer gets lost. With `done` False the command gets lost too, which nobody can tell. All
    jobs have the same topic.
    """

    def __init__(self, topic: str = TOPIC) -> None:
        self.topic = topic
        self.now = 100.0
        self.jobs: dict[str, Tale] = {}
        self.schedules: dict[str, tuple[float, float, int]] = {}  # start, interval and body, by name
        self.totals = {"created": 0, "replaced": 0, "finished": 0, "deleted": 0, "delivered": 0}
        self._events: list[Event] = []
        self._ops = 0

    @property
    def redis(self) -> float:
        """Redis's clock, in whole ms."""
        return round(EPOCH_S + self.now, 3)

    def pass_s(self, seconds: float) -> None:
        self.now += seconds

    def write(self, kind: str, command: str, op: int = 0, process: str = "p", **fields: Any) -> int:
        """Add an event. Returns the number of its command, a new one without `op`."""
        self._ops += not op
        self.now += _STEP_S
        event = Event(at=self.now, process=process, kind=kind, command=command, op=op or self._ops, **fields)
        self._events.append(event)
        return event.op

    def _end(self, command: str, op: int, heard: bool, job: str, **told: Any) -> None:
        kind = ("fail" if "code" in told else "ok") if heard else "info"
        self.write(kind, command, op, id=job, **(told if heard else {"code": "NOT_ANSWERED"}))

    def add(
        self,
        job: str,
        delay: float = 0.0,
        heard: bool = True,
        done: bool = True,
        tries: int = 0,
        priority: int = 4,
        key: str | None = None,
        **told: Any,
    ) -> None:
        body = len(self.jobs)
        asked: dict[str, Any] = {"id": job, "topic": self.topic, "delay": delay, "ttr": TTR_S, "tries": tries}
        asked |= {"priority": priority, "key": key}
        op = self.write("invoke", "add", body=self.jobs[job].body if job in self.jobs else body, **asked)
        result = "existing"
        if done and job not in self.jobs:
            result = "created"
            self.jobs[job] = Tale(body, round(self.redis + delay, 3), tries)
            self.totals["created"] += 1
        due = self.jobs[job].due if job in self.jobs else None
        self._end("add", op, heard and done, job, **{"due": due, "result": result, "durability": "local"} | told)

    def may_pop(self, job: str) -> bool:
        tale = self.jobs[job]
        waits = tale.state == "delayed" and max(tale.due, tale.until) <= self.redis
        return waits or (tale.state == "reserved" and tale.until <= self.redis)

    def pop(self, job: str, heard: bool = True, **lies: Any) -> int:
        """Deliver a job, whatever its state. Returns its lease. `lies` replace the truth in the answer."""
        tale = self.jobs.get(job) or Tale(0, self.redis)
        op = self.write("invoke", "pop", topic=self.topic)
        tale.lease = max(tale.lease + 1, round(self.redis * 1000) * 1000)
        tale.state, tale.until, tale.attempt = "reserved", round(tale.lease / 1e6 + TTR_S, 3), tale.attempt + 1
        self.totals["delivered"] += 1
        told: dict[str, Any] = {
            "lease": tale.lease,
            "attempt": tale.attempt,
            "due": tale.due,
            "body": tale.body,
            "tries": tale.tries,
            "created": tale.created,
        }
        told |= {"topic": self.topic, "ttr": TTR_S, "redis": tale.lease / 1e6} | lies
        self._end("pop", op, heard, job, **told)
        return int(told["lease"] or 0)

    def _holds(self, job: str, lease: int) -> bool:
        return self.jobs[job].state == "reserved" and self.jobs[job].lease == lease

    def finish(self, job: str, lease: int, heard: bool = True, done: bool = True, **told: Any) -> None:
        op = self.write("invoke", "finish", id=job, lease=lease)
        tale = self.jobs[job]
        if tale.state == "deleted":
            told = {"code": "NOT_FOUND"}
        elif tale.state != "finished" and tale.lease != lease:
            told = {"code": "STALE_LEASE"}
        elif done and tale.state != "finished":
            tale.state = "finished"
            self.totals["finished"] += 1
        self._end("finish", op, heard and done, job, **told)

    def delete(self, job: str, heard: bool = True, done: bool = True, **told: Any) -> None:
        op = self.write("invoke", "delete", id=job)
        tale = self.jobs[job]
        if tale.state == "finished":
            told = {"code": "WRONG_STATE"}
        elif done and tale.state != "deleted":
            tale.state = "deleted"
            self.totals["deleted"] += 1
        self._end("delete", op, heard and done, job, **told)

    def touch(self, job: str, lease: int, heard: bool = True) -> None:
        op = self.write("invoke", "touch", id=job, lease=lease, ttr=TTR_S)
        if not self._holds(job, lease):
            self._end("touch", op, heard, job, code="STALE_LEASE")
            return
        self.jobs[job].until = round(self.redis + TTR_S, 3)
        self._end("touch", op, heard, job, until=self.jobs[job].until)

    def release(self, job: str, lease: int, delay: float, heard: bool = True, counts: bool = True) -> None:
        op = self.write("invoke", "release", id=job, lease=lease, delay=delay, attempt=int(counts))
        if not self._holds(job, lease):
            self._end("release", op, heard, job, code="STALE_LEASE")
            return
        tale = self.jobs[job]
        tale.state, tale.until = "delayed", round(self.redis + delay, 3)
        tale.attempt -= not counts
        self._end("release", op, heard, job, due=tale.until, state="ready" if delay == 0 else "delayed")

    def schedule(self, name: str, every: float, body: int = 7, **rules: Any) -> None:
        """Define a schedule whose times are counted from now."""
        start = self.redis
        asked: dict[str, Any] = {"id": name, "topic": self.topic, "body": body, "every": every, "start": start}
        op = self.write("invoke", "schedule", **asked | {"catch_up": "all", "overlap": "allow"} | rules)
        self.write("ok", "schedule", op, id=name, due=round(start + every, 3), result="created")
        self.schedules[name] = (start, every, body)

    def occur(self, name: str, turn: int) -> str:
        """Make an occurrence, now; returns its id."""
        start, every, body = self.schedules[name]
        due = round(start + turn * every, 3)
        job = f"{name}@{round(due * 1000)}"
        self.jobs[job] = Tale(body, due, created=self.redis)
        self.totals["created"] += 1
        return job

    def run(self, name: str, turn: int) -> str:
        """Wait for an occurrence, make it, and do its job; returns its id."""
        start, every, _ = self.schedules[name]
        self.pass_s(max(0.0, start + turn * every - self.redis))
        job = self.occur(name, turn)
        self.finish(job, self.pop(job))
        return job

    def read_schedules(self, *names: str, turn: int) -> None:
        """Read how far schedules got: their next times are those of a turn."""
        op = self.write("invoke", "schedules")
        for name in names:
            start, every, _ = self.schedules[name]
            self.write("ok", "schedules", op, id=name, due=round(start + turn * every, 3))

    def begin_fault(self, *forgets: str, nemesis: str = "kill", **fields: Any) -> int:
        """Begin a fault, which may be allowed to forget. Returns its number."""
        return self.write("begin", nemesis, process="nemesis", forgets=forgets, **fields)

    def end_fault(self, op: int, nemesis: str = "kill") -> None:
        self.write("end", nemesis, op, process="nemesis")

    def fault(self, *forgets: str, forgets_s: float = 0.0, for_s: float = 1.0) -> None:
        """A fault that lasts for a while, and may be allowed to forget."""
        op = self.begin_fault(*forgets, forgets_s=forgets_s)
        self.pass_s(for_s)
        self.end_fault(op)

    def lose(self, job: str) -> None:
        """Forget everything about a job."""
        del self.jobs[job]
        self.totals["created"] -= 1

    def drain(self) -> None:
        """Deliver and finish everything that is alive."""
        self.pass_s(60)
        for job, tale in self.jobs.items():
            if tale.state in ("delayed", "reserved"):
                self.finish(job, self.pop(job))

    def look(self, *gone: str, **lies: int) -> list[Event]:
        """Add the final reads of all jobs, including those that are gone, and of the counts. Returns the whole
        history."""
        for job in (*self.jobs, *gone):
            op = self.write("invoke", "get", id=job)
            told = {"state": self.jobs[job].state} if job in self.jobs else {"code": "NOT_FOUND"}
            self._end("get", op, True, job, **told)
        live = [tale.state for tale in self.jobs.values() if tale.state not in ("finished", "deleted")]
        op = self.write("invoke", "stats", topic=self.topic)
        counts = {state: live.count(state) for state in live}
        self.write("ok", "stats", op, topic=self.topic, counts=counts, totals=self.totals | lies)
        return numbered(self._events)
