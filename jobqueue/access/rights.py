"""The rights of tokens: which commands each allows, and which right a command needs."""

from __future__ import annotations

from typing import Any

from jobqueue.schema import commands, inner

_ROWS = commands.COMMANDS | commands.OF_TESTS
OF_COMMANDS: dict[str, tuple[str, ...]] = {
    right: tuple(name for name, row in _ROWS.items() if right in row.rights)
    for right in ("produce", "consume", "look", "operate", "admin")
}
"""The commands that each right allows; `admin` allows those of all others, too."""
BODIES = "bodies"
METRICS = "metrics"
ADMIN = "admin"
ACTOR = "actor"
OF_NOTHING_ELSE = (BODIES, METRICS, ACTOR)
"""Rights that allow no command: to see the bodies of jobs, to read /metrics, to name the person who acts."""
SPARED = frozenset(name for name, row in _ROWS.items() if row.is_spared)
"""Commands that no rate refuses."""
_OPEN_TO_ALL = tuple(name for name, row in _ROWS.items() if not row.rights)

_NAMES: dict[type[Any], str] = {kind: name for name, kind in inner.BY_NAME.items()} | {
    inner.Take: "pop",
    inner.Names: "topics",
    inner.Counter: "stats",
    inner.Restore: "kick",
}
_NAMES |= {row.kind: name for name, row in _ROWS.items()}
SHOWING = tuple(kind for kind, name in _NAMES.items() if _ROWS[name].shows_bodies)
"""The structs of commands whose answers have bodies of jobs; their field `body` says whether they are asked for."""
COMMANDS = tuple(sorted(_ROWS))
"""The names of all commands, each of which is a right of its own."""
RIGHTS = (*OF_COMMANDS, *OF_NOTHING_ELSE)
"""The rights that have names of their own."""
WORDS = frozenset((*RIGHTS, *COMMANDS)) - commands.OF_TESTS.keys()
"""What a token may be given. On a test service `admin` allows its own commands, too."""


def name_of(command: Any) -> str:
    """The name of a command as rights know it: those that dialects give are like native ones."""
    return _NAMES[type(command)]


def commands_of(rights: tuple[str, ...]) -> frozenset[str]:
    """The names of the commands that rights allow."""
    if ADMIN in rights:
        return frozenset(COMMANDS)
    allowed = {name for right in rights for name in OF_COMMANDS.get(right, (right,) if right in COMMANDS else ())}
    return frozenset((*allowed, *_OPEN_TO_ALL))


def kinds_of(names: frozenset[str]) -> frozenset[type[Any]]:
    """The structs of commands with these names."""
    return frozenset(kind for kind, name in _NAMES.items() if name in names)


def right_for(name: str) -> str:
    """The right that a command needs, to be named in a refusal; of several the first."""
    row = _ROWS.get(name)
    return row.rights[0] if row and row.rights else name
