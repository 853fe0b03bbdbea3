"""What a new command needs besides its code, and what nobody would miss at once: each gap is named in a sentence.

CONTRIBUTING.md, "Add a command", has the way; other tests see to the reference, the answers and the scenario.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest

from jobqueue.access import tokens
from jobqueue.cli.main import main
from jobqueue.schema import params
from jobqueue.schema.commands import COMMANDS, HISTORY, JOBS, OF_TESTS, SERVICE, TOPICS
from tests.kit.service import ROOT

CLIENTS = ROOT / "clients"


def _text(path: str) -> str:
    return (CLIENTS / path).read_text()


def _repeated(path: str, name: str = "SAFE") -> set[str]:
    """The commands that a client repeats whatever their fields."""
    (listed,) = re.findall(rf"\b_?{name} = (?:new Set\()?[\[{{](.*?)[\]}}]", _text(path), re.S)
    return set(re.findall(r"['\"](\w+)['\"]", listed))


_PHP = "".join(file.read_text() for file in (CLIENTS / "php" / "src").glob("*.php"))
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
        lambda name: name in COMMANDS,
        "it has no row, so nothing says who may send it, and where the help lists it: jobqueue/schema/commands.py",
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
        "Node has no type of its answer: name one in jobqueue/reference/client_types.py, and run `make docs`",
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


def test_the_rows_name_known_rights_and_sections() -> None:
    assert COMMANDS.keys() == params.BY_NAME.keys() and OF_TESTS.keys() == params.OF_TESTS.keys()
    assert {right for row in COMMANDS.values() for right in row.rights} == tokens.OF_COMMANDS.keys()
    assert {row.section for row in COMMANDS.values()} == {JOBS, TOPICS, HISTORY, SERVICE, None}
    assert [name for name, row in COMMANDS.items() if row.section is None] == ["leave"]
    assert main.commands.keys() >= {name for name, row in COMMANDS.items() if row.section}


def test_the_clients_repeat_what_the_rows_say() -> None:
    repeated = {name for name, row in COMMANDS.items() if row.repeat}
    for file in ("python/jobqueue_client/retry.py", "node/src/retry.js", "php/src/Retries.php"):
        assert _repeated(file) == repeated, f"the list SAFE of clients/{file} differs from jobqueue/schema/commands.py"
    partly = {"add", "touch", "release", "bury", "operation"}  # by their fields
    safe = "".join(line.split("|")[1] for line in _TABLE.splitlines()[1:] if "|" in line[1:])
    assert {name for name in COMMANDS if _is_in(safe, name)} == repeated | partly
