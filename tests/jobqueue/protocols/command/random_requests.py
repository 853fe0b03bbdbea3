"""Random requests of the commands that the fast path knows: plain ones, nearly plain ones, and wrong ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

IDS = [*"abcdefgh", "order:1", "e@1", "t%3A1:%E2%82%AC"]
TOPICS = ["t", "u", "v:1", "both", "full"]
_BODIES: list[Any] = [
    *(None, True, 0, -1.5, 1e300, "", "x" * 99, "ü€", "\u2028", {"a": [1, {"b": "c"}]}, [[]], "\\u0041", 'a"b\\c\n'),
    *([[[]]] * 3, {"": ""}, "1e999"),
]
_ODD_BODIES = [b"1e999", b'"\\ud800"', b"[" * 600 + b"]" * 600, b'"' + b"x" * 300_000 + b'"', b'"\xff"', b"nul", b" 7 "]
_RAW = "@@raw@@"
_SPANS = ("delay", "ttr", "ttl", "retention")
_LONG_S = 3600


class Maker:
    """Makes requests. `leases` are those that earlier pops gave, by id. `steady`: the answers do not depend on how much
    time passes between the requests."""

    def __init__(self, seed: int, now_s: float, *, steady: bool = False) -> None:
        self.chance = random.Random(seed)
        self._is_steady = steady
        self.leases: dict[str, int] = {}
        self._now_s = now_s

    def request(self) -> bytes:
        """Of any kind."""
        choice = self.chance.choice
        few = range(self.chance.randrange(1, 7))
        kinds: dict[str, Callable[[], Any]] = {
            "add": self._add,
            "finish": self._finish,
            "pop": self._pop,
            "other": self._other,
            "adds": lambda: [self._add() for _ in few],
            "finishes": lambda: [self._finish() for _ in few],
            "finishes, pop": lambda: [*(self._finish() for _ in few), self._pop()],
            "pop in an array": lambda: [self._pop()],
            "mixed": lambda: [choice([self._add, self._finish, self._pop, self._other])() for _ in few],
        }
        weights = [4, 4, 6, 2, 4, 2, 4, 1, 1]
        made = kinds[self.chance.choices([*kinds], weights)[0]]()
        text = json.dumps(made, ensure_ascii=choice([True, False]), indent=choice([None, None, None, 1]))
        raw = choice(_ODD_BODIES) if _RAW in text else b""
        data = text.encode().replace(f'"{_RAW}"'.encode(), raw)
        return data if self.chance.random() > 0.02 else data[: self.chance.randrange(len(data))]

    def _rarely(self, chance: float = 0.1) -> bool:
        return self.chance.random() < chance

    def _id(self) -> str:
        return "no name" if self._rarely(0.01) else self.chance.choice(IDS)

    def _add(self) -> dict[str, Any]:
        choice = self.chance.choice
        add = {"command": "add", "topic": choice(TOPICS), "id": self._id(), "body": choice(_BODIES)}
        some: dict[str, list[Any]] = {
            "delay": [0, 0.0005, 1, 16.1, 86400, 1e10],
            "at": [0, self._now_s - 5, self._now_s + 60, "2027-01-15T09:00:00+01:00", 1e11],
            "ttr": [0, 0.1, 30, 16.1, 0.05, 5000],
            "TTR": [60],
            "priority": [0, 4, 9, 10],
            "tries": [0, 1, 3],
            "ttl": [1e6, 0.001, 1e6],
            "retention": [0, 60, 7.5, 90_000],
            "spread": [0, 0.001, 5, 86_400, 86_401],
            "if_exists": ["keep", "reject", "renew", "replace", "replace", "later", "later", "sooner"],
            "backoff": [[], [1, 2]],
            "headers": [{}, {"a": "b"}],
            "tags": [["x"]],
            "durability": ["local"],
            "nope": [1],
        }
        for name, values in some.items():
            if self._is_steady and name in _SPANS:  # those between the first and the last are short
                del values[1:-1]
            if self._rarely(0.4 if name == "if_exists" else 0.02 if name == "nope" else 0.07):
                add[name] = choice([*values, None])
        if self._rarely(0.03):
            add["body"] = _RAW
        elif self._rarely(0.2 if add.get("if_exists") in ("later", "sooner") else 0.01):
            del add["body"]
        return add

    def _finish(self) -> dict[str, Any]:
        finish: dict[str, Any] = {"command": "finish", "id": self._id()}
        if self._rarely(0.7):
            finish["lease"] = self.leases.get(finish["id"], 7) - (1 if self._rarely() else 0)
        if self._rarely(0.05):
            finish["durability"] = self.chance.choice(["local", None])
        return finish

    def _pop(self) -> dict[str, Any]:
        choice = self.chance.choice
        pop: dict[str, Any] = {"command": "pop"}
        if self._rarely(0.03):
            pop["id"] = self._id()
        elif self._rarely(0.3):
            pop["topics"] = [choice(TOPICS) for _ in range(self.chance.randrange(1, 4))]
        else:
            pop["topic"] = choice([*TOPICS, "nowhere"])
        some: dict[str, list[Any]] = {
            "count": [1, 2, 5, 1000, 0],
            "wait": [0, 0.01],
            "ttr": [0, 5, 0.05],
            "worker": ["w1", "", "ü\n"],
        }
        for name, values in some.items():
            if self._rarely(0.3):
                pop[name] = choice([*values, None])
        return pop

    def _other(self) -> dict[str, Any]:
        choice = self.chance.choice
        steady: list[dict[str, Any]] = [
            {"command": "release", "id": self._id(), "delay": choice([0, _LONG_S])},
            {"command": "delete", "id": self._id()},
            {"command": "bury", "id": self._id()},
            {"command": "resume", "topic": choice(TOPICS)},
            {"command": "nope"},
        ]
        passing: list[dict[str, Any]] = [
            {"command": "release", "id": self._id(), "delay": choice([0.001, 9])},
            {"command": "pause", "topic": choice(TOPICS), "seconds": choice([0, 1])},
            {"command": "get", "id": self._id()},
            {"command": "stats"},
        ]
        return choice(steady if self._is_steady else steady + passing)
