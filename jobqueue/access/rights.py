"""The rights of tokens: which commands each allows, and which right a command needs."""

from __future__ import annotations

from typing import Any

from jobqueue.schema import inner, params

OF_COMMANDS: dict[str, tuple[str, ...]] = {
    "produce": ("add", "update", "delete", "schedule", "unschedule"),
    "consume": ("pop", "finish", "touch", "release", "bury", "leave", "delete"),
    "look": (
        *("get", "explain", "peek", "stats", "topics", "workers", "schedules", "forecast", "find"),
        *("instances", "health", "figures"),
    ),
    "operate": ("kick", "run", "pause", "resume", "purge", "operation"),
    "admin": ("token", "actions", "clock", "reset", "settings"),
}
"""The commands that each right allows; `admin` allows those of all others, too."""
BODIES = "bodies"
METRICS = "metrics"
ADMIN = "admin"
ACTOR = "actor"
OF_NOTHING_ELSE = (BODIES, METRICS, ACTOR)
"""Rights that allow no command: to see the bodies of jobs, to read /metrics, to name the person who acts."""
FREE = ("finish", "touch", "release", "bury", "leave")
"""Commands that no rate refuses, since that would make work be done twice."""
OPEN_TO_ALL: tuple[str, ...] = ("whoami",)
"""Commands that need no right, but a valid token."""

_KINDS: dict[str, type[Any]] = {**params.BY_NAME, **params.OF_TESTS}
_NAMES: dict[type[Any], str] = {kind: name for name, kind in (*inner.BY_NAME.items(), *_KINDS.items())} | {
    inner.Take: "pop",
    inner.Names: "topics",
    inner.Counter: "stats",
    inner.Restore: "kick",
}
COMMANDS = tuple(sorted(_KINDS))
"""The names of all commands, each of which is a right of its own."""
RIGHTS = (*OF_COMMANDS, *OF_NOTHING_ELSE)
"""The rights that have names of their own."""
WORDS = frozenset((*RIGHTS, *COMMANDS)) - {*params.OF_TESTS}
"""What a token may be given. On a test service `admin` allows its own commands, too."""


def name_of(command: Any) -> str:
    """The name of a command as rights know it: those that dialects give are like native ones."""
    return _NAMES[type(command)]


def commands_of(rights: tuple[str, ...]) -> frozenset[str]:
    """The names of the commands that rights allow."""
    if ADMIN in rights:
        return frozenset(COMMANDS)
    allowed = {name for right in rights for name in OF_COMMANDS.get(right, (right,) if right in COMMANDS else ())}
    return frozenset((*allowed, *OPEN_TO_ALL))


def kinds_of(names: frozenset[str]) -> frozenset[type[Any]]:
    """The structs of commands with these names."""
    return frozenset(kind for kind, name in _NAMES.items() if name in names)


def right_for(name: str) -> str:
    """The right that a command needs, to be named in a refusal; of several the first."""
    return next((right for right, names in OF_COMMANDS.items() if name in names), name)
