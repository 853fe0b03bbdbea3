"""What a new command needs besides its code, and what nobody would miss at once: each gap is named in a sentence.

CONTRIBUTING.md, "Add a command", has the way; other tests see to the reference, the answers and the scenario.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest

from jobqueue.access import rights
from jobqueue.cli.main import _SECTIONS, main
from jobqueue.schema import params
from tests.kit.service import ROOT

CLIENTS = ROOT / "clients"
_FOR_PROGRAMS = {"leave"}
"""No command of the command line for people: the help does not list it."""


def _text(path: str) -> str:
    return (CLIENTS / path).read_text()


def _repeated(path: str, name: str = "SAFE") -> set[str]:
    """The commands that a client repeats whatever their fields."""
    (listed,) = re.findall(rf"\b_?{name} = (?:new Set\()?[\[{{](.*?)[\]}}]", _text(path), re.S)
    return set(re.findall(r"['\"](\w+)['\"]", listed))


_PHP = "".join(file.read_text() for file in (CLIENTS / "php" / "src").glob("*.php"))
_PYTHON_SAFE = _repeated("python/jobqueue_client/retry.py")
_TABLE = _text("README.md").partition("| safe to repeat | not safe |")[2].partition("\n\n")[0]
_METHODS = _text("README.md").partition("| method | sends | gives |")[2].partition("\n\n")[0]


def _is_in(words: str, name: str) -> bool:
    return bool(re.search(rf"`{name}\b", words))


class Place(NamedTuple):
    """Where a command has to be. `cure`: the sentence that says so."""

    has: Callable[[str], bool]
    cure: str


PLACES = (
    Place(
        lambda name: (
            name in main.commands and any(name in names for names in _SECTIONS.values()) != (name in _FOR_PROGRAMS)
        ),
        "no section of `jobqueue --help` lists it: _SECTIONS in jobqueue/cli/main.py",
    ),
    Place(
        lambda name: name in rights.OPEN_TO_ALL or any(name in names for names in rights.OF_COMMANDS.values()),
        "no right allows it, so only admins may call it: OF_COMMANDS in jobqueue/access/rights.py",
    ),
    Place(
        lambda name: _is_in(_TABLE, name),
        "nothing says whether it is safe to repeat: the table of clients/README.md, What is retried",
    ),
    Place(
        lambda name: _is_in(_METHODS, name),
        "no method is listed for it: the table of clients/README.md, The client",
    ),
    Place(
        lambda name: all(
            f"def {name}(" in _text(f"python/jobqueue_client/{each}.py") for each in ("client", "async_client")
        ),
        "Python has no method for it: client.py, async_client.py and commands.py in clients/python/jobqueue_client",
    ),
    Place(
        lambda name: f"public function {name}(" in _PHP,
        "PHP has no method for it: clients/php/src",
    ),
    Place(
        lambda name: bool(re.search(rf"^  {name}[(<]", _text("node/types/client.d.ts"), re.M)),
        "Node has no method for it: clients/node/src/client.js, and its type in types/client.d.ts",
    ),
    Place(
        lambda name: bool(re.search(rf"command: (?:'\w+' \| )*'{name}'", _text("node/types/commands.d.ts"))),
        "Node has no type of it for a batch: Command in clients/node/types/commands.d.ts",
    ),
    Place(
        lambda name: bool(re.search(rf"^  {name}: \w+", _text("node/types/answers.d.ts"), re.M)),
        "Node has no type of its answer: Answers in clients/node/types/answers.d.ts",
    ),
)


def lacks(name: str) -> list[str]:
    """What a command lacks, in sentences."""
    return [f"the command {name}: {place.cure}" for place in PLACES if not place.has(name)]


@pytest.mark.parametrize("name", params.BY_NAME)
def test_a_command_is_everywhere_where_it_has_to_be(name: str) -> None:
    assert not lacks(name), "\n".join(lacks(name))


def test_a_command_that_is_nowhere_lacks_everything() -> None:
    assert len(lacks("transmogrify")) == len(PLACES)


def test_the_clients_repeat_the_same_commands() -> None:
    """What nobody lists is not repeated after a lost answer."""
    assert _repeated("node/src/retry.js") == _PYTHON_SAFE == _repeated("php/src/Retries.php")
    unsafe = {"add", "pop", "run", "kick", "update", "purge", "token", "operation", "touch", "release", "bury"}
    undecided = params.BY_NAME.keys() - _PYTHON_SAFE - unsafe
    assert not undecided, (
        f"safe to repeat, or not? _SAFE of each client lacks {undecided}; or it belongs to `unsafe` here"
    )
