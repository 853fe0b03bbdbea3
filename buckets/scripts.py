"""The scripts: one file of `lua/` a move, loaded once.

A script's head is read here: its arrows, whether it may be repeated when it is not known if it ran, what it
includes, and the names of its arguments (`local name = KEYS[n]`, `= ARGV[n]`, or `= {unpack(ARGV, n)}` for all the
rest). Python calls by these names; a wrong one is an error that says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from buckets.keys import lua_names

_FOLDER = Path(__file__).parent / "lua"
_ARGUMENT = re.compile(r"^local (\w+) = (.*?\b(KEYS|ARGV)\b.*)$", re.M)
_FIELD = re.compile(r"^-- (arrows|repeat|include): (.*(?:\n--   .*)*)", re.M)

Value = str | bytes | int


@dataclass(frozen=True, slots=True)
class Script:
    """A script of Redis with the names of its arguments."""

    name: str
    text: str
    arrows: tuple[tuple[str, str], ...]
    repeatable: bool  # running it twice does no harm
    keys: tuple[str, ...]
    args: tuple[str, ...]
    rest: str | None
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())

    def arguments(self, named: dict[str, Value], rest: Sequence[Value]) -> list[Value]:
        """What follows the script in EVALSHA: number of keys, keys, arguments. Raises TypeError for a wrong name."""
        names = self.keys + self.args
        if len(named) != len(names) or (rest and self.rest is None):
            raise TypeError(f"{self.name}.lua takes {', '.join(names)}, not {', '.join(named)}")
        try:
            return [len(self.keys), *[named[name] for name in names], *rest]
        except KeyError as missing:
            raise TypeError(f"{self.name}.lua takes {missing}, not {', '.join(named)}") from None


def _head(source: str) -> tuple[dict[str, str], int]:
    """The fields of the head, and where it ends."""
    fields = {name: " ".join(text.replace("\n--", " ").split()) for name, text in _FIELD.findall(source)}
    return fields, max(match.end() for match in _ARGUMENT.finditer(source))


def _arrows(text: str) -> tuple[tuple[str, str], ...]:
    if text == "none":
        return ()
    pairs = [arrow.split(" -> ") for arrow in text.split(", ")]
    return tuple((before, after) for before, after in pairs)


@cache
def _included(name: str) -> str:
    return (_FOLDER / "include" / f"{name}.lua").read_text()


def load(path: Path) -> Script:
    """Read one file and put its includes, and the key prefixes that it uses, behind its arguments."""
    source = path.read_text()
    fields, end = _head(source)
    body = source[end:]
    if "KEYS" in body or "ARGV" in body:
        raise ValueError(f"{path.name} uses KEYS or ARGV below its arguments")
    included = "".join(_included(name) for name in fields.get("include", "").split())
    arguments = _ARGUMENT.findall(source[:end])
    return Script(
        name=path.stem,
        text=f"{source[:end]}\n{lua_names(included + body)}{included}{body}",
        arrows=_arrows(fields["arrows"]),
        repeatable=fields["repeat"] == "yes",
        keys=tuple(name for name, _, kind in arguments if kind == "KEYS"),
        args=tuple(name for name, text, kind in arguments if kind == "ARGV" and "unpack" not in text),
        rest=next((name for name, text, _ in arguments if "unpack" in text), None),
    )


SCRIPTS = {path.stem: load(path) for path in sorted(_FOLDER.glob("*.lua"))}
