"""The Lua scripts: each is a file in a folder of `lua/`, composed and loaded once.

A script's head says which moves it makes (`arrows`), whether it may be repeated when it is unknown whether it ran,
which includes it needs, and the names of its arguments (`local name = KEYS[n]`, `= ARGV[n]`, or `= {unpack(ARGV, n)}`
for all that follow). Python passes arguments by these names; a wrong one raises an error that lists the right ones.

An include names the includes that it needs itself, and the script's arguments that it reads. Redis gets, in this order:
the arguments, the key prefixes (buckets/keys.py) and the numbers of the record (buckets/record.py) that the script
uses, its includes, each once and after the includes that it needs, and the rest of the file.

Creating a function costs Redis time in every run, whether it is called or not. So the scripts of the hot path define
the functions that only the complete path needs inside one function, `complete_path`, which they call in case of doubt.
A function that begins with a line `-- include: …`, in a script or in an include, gets its own includes at that line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from buckets.keys import lua_names
from buckets.record import lua_numbers

_FOLDER = Path(__file__).parent / "lua"
_INCLUDES = {path.stem: path for path in (_FOLDER / "include").rglob("*.lua")}
_ARGUMENT = re.compile(r"^local (\w+) = (.*?\b(KEYS|ARGV)\b.*)$", re.M)
_FIELD = re.compile(r"^-- (arrows|repeat|include|argument): (.*(?:\n--   .*)*)", re.M)
_WITH_INCLUDES = re.compile(r"^(local function \w+\(.*\)\n)  -- include: (.*)\n((?s:.*?)^)end$", re.M)
_WORD = re.compile(r"(?<![.\w])\w+")
_NO_CODE = re.compile(r"--.*|'[^'\n]*'")  # comments and strings

Value = str | bytes | int


@dataclass(frozen=True, slots=True)
class Script:
    """A Redis script with the names of its arguments."""

    name: str
    text: str
    arrows: tuple[tuple[str, str], ...]
    repeatable: bool  # running it twice does no harm
    keys: tuple[str, ...]
    args: tuple[str, ...]
    rest: str | None
    sha: str = field(init=False)
    has_events: bool = field(init=False)
    """Whether the script records events of its moves, so that it has the argument `by`: who makes them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())
        object.__setattr__(self, "has_events", "by" in self.args)

    def arguments(self, named: dict[str, Value], rest: Sequence[Value]) -> list[Value]:
        """The arguments after the script in EVALSHA: number of keys, keys, arguments. Raises TypeError for a wrong
        name."""
        names = self.keys + self.args
        if len(named) != len(names) or (rest and self.rest is None):
            raise TypeError(f"{self.name}.lua takes {', '.join(names)}, not {', '.join(named)}")
        try:
            return [len(self.keys), *[named[name] for name in names], *rest]
        except KeyError as missing:
            raise TypeError(f"{self.name}.lua takes {missing}, not {', '.join(named)}") from None


def _fields(source: str) -> dict[str, str]:
    """The fields of a script's head."""
    return {name: " ".join(text.replace("\n--", " ").split()) for name, text in _FIELD.findall(source)}


def _arrows(text: str) -> tuple[tuple[str, str], ...]:
    if text == "none":
        return ()
    pairs = [arrow.split(" -> ") for arrow in text.split(", ")]
    return tuple((before, after) for before, after in pairs)


class _Include(NamedTuple):
    text: str
    needs: tuple[str, ...]
    """The includes that it needs itself."""
    reads: tuple[str, ...]
    """The script's arguments that it reads."""
    outside: str
    """Its text without the functions that have includes of their own."""


@cache
def _include(name: str) -> _Include:
    source = _INCLUDES[name].read_text()
    fields = _fields(source)
    needs = tuple(fields.get("include", "").split())

    def composed(function: re.Match[str]) -> str:
        return _with_its_own(function, _resolved(needs))

    reads = tuple(fields.get("argument", "").split())
    return _Include(_WITH_INCLUDES.sub(composed, source), needs, reads, _WITH_INCLUDES.sub("", source))


def _resolved(names: Iterable[str], present: Iterable[str] = ()) -> list[str]:
    """Includes and all includes that they need, each once and after those that it needs, without those already
    present."""
    found = list(present)

    def add(name: str) -> None:
        if name not in found:
            for needed in _include(name).needs:
                add(needed)
            found.append(name)

    for name in names:
        add(name)
    return found[len(list(present)) :]


def _text_of(includes: Iterable[str]) -> str:
    return "".join(_include(name).text for name in includes)


@cache
def _words(code: str) -> frozenset[str]:
    """The words of code, except fields of tables."""
    return frozenset(_WORD.findall(_NO_CODE.sub("", code)))


def _words_of(code: str, includes: Iterable[str]) -> frozenset[str]:
    """As `_words`, for code and includes. Includes are read once, as many scripts share them."""
    return _words(code).union(*(_words(_include(name).outside) for name in includes))


def _with_its_own(function: re.Match[str], shared: Sequence[str]) -> str:
    """A function with its own includes, and its own copy of the prefixes and numbers that it uses: they cost nothing
    until it is called, and a Lua function can share only 60 variables with the code around it. `shared`: the includes
    around it."""
    own = _resolved(function[2].split(), shared)
    words = _words_of(function[3], own)
    return f"{function[1]}{lua_names(words)}{lua_numbers(words)}{_text_of(own)}{function[3]}end"


def _compose(body: str, shared: Sequence[str]) -> str:
    """The text after the arguments. `shared`: the includes of the whole script."""
    outside = _words_of(_WITH_INCLUDES.sub("", body), shared)
    whole = _WITH_INCLUDES.sub(lambda function: _with_its_own(function, shared), body)
    return lua_names(outside) + lua_numbers(outside) + _text_of(shared) + whole


def load(path: Path) -> Script:
    """Read and compose one script. Raises ValueError if the script reads arguments below its head, or lacks an argument
    that an include reads."""
    source = path.read_text()
    fields = _fields(source)
    end = max(match.end() for match in _ARGUMENT.finditer(source))
    arguments = _ARGUMENT.findall(source[:end])
    body = source[end:]
    if "KEYS" in body or "ARGV" in body:
        raise ValueError(f"{path.name} uses KEYS or ARGV below its arguments")
    shared = _resolved(fields.get("include", "").split())
    lacking = {name for each in shared for name in _include(each).reads} - {name for name, _, _ in arguments}
    if lacking:
        raise ValueError(f"{path.name} lacks arguments that its includes read: {', '.join(sorted(lacking))}")
    return Script(
        name=path.stem,
        text=f"{source[:end]}\n{_compose(body, shared)}",
        arrows=_arrows(fields["arrows"]),
        repeatable=fields["repeat"] == "yes",
        keys=tuple(name for name, _, kind in arguments if kind == "KEYS"),
        args=tuple(name for name, text, kind in arguments if kind == "ARGV" and "unpack" not in text),
        rest=next((name for name, text, _ in arguments if "unpack" in text), None),
    )


SCRIPTS = {path.stem: load(path) for path in sorted(_FOLDER.glob("*/*.lua")) if path.parent.name != "include"}
