"""The layers: each package has a few named strata, and imports go down or stay within one, `TYPE_CHECKING` included."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# From the bottom up; each names the folders and modules that it holds.
STRATA: dict[str, dict[str, tuple[str, ...]]] = {
    "buckets": {
        "words": ("errors", "clock", "keys", "layout", "job", "record", "meter", "scripts"),
        "redis": ("redis",),
        "jobs": ("namespace", "shards", "pages", "pool"),
        "topics": ("events", "durable", "topics", "waiting", "schedules"),
        "keepers": ("timers", "access", "fsck", "migration", "operations"),
        "outside": ("public",),
    },
    "jobqueue": {
        "ground": ("errors", "logs", "loops", "tracing"),
        "schema": ("schema",),
        "engine": ("settings", "dialect_settings", "access", "engine", "metrics"),
        "commands": ("commands",),
        "wires": ("wires",),
        "protocols": ("protocols", "reference"),
        "web": ("web",),
        "journal": ("journal",),
        "service": ("redis_server", "app", "testing", "process", "workers", "health"),
        "sinks": ("sinks", "outbox"),
        "cli": ("cli", "console", "__main__"),
    },
    "jobqueue_client": {
        "words": ("job", "fields", "answers", "errors", "access", "options"),
        "calls": ("commands", "http", "connections", "async_connections", "retry", "tracing", "calls"),
        "clients": ("client", "async_client", "outbox"),
        "worker": ("worker",),
        "testing": ("testing",),
    },
    "pyspark_jobqueue": {
        "ground": ("errors", "session"),
        "connector": ("connector",),
        "pipelines": ("pipelines",),
    },
}
FAMILIES = ("jobqueue.protocols", "jobqueue.sinks")
"""Folders whose members do not know each other; their `__init__` is the contract below them."""
MAY_USE = {
    "jobqueue": ("buckets",),
    "jobqueue.cli": ("jobqueue_client",),
    "jobqueue.console": ("jobqueue_client",),
    "jobqueue.outbox": ("jobqueue_client",),
    "jobqueue.sinks.pump": ("jobqueue_client",),
    "jobqueue.sinks.webhook": ("jobqueue_client",),
}
"""What a part uses of other packages. The command line and the workers of sinks are users of a service like any other;
the service itself does not use the client."""
ONLY = {
    "jobqueue.console": (
        *("jobqueue.console", "jobqueue.cli.client", "jobqueue.cli.humanize", "jobqueue.cli.times", "jobqueue.loops"),
    ),
}
"""Parts that use nothing else of ours, other packages included, but for `jobqueue_client`. The console sees what the
service answers, and nothing behind it."""
FOLDERS = {"jobqueue_client": ROOT / "clients" / "python", "pyspark_jobqueue": ROOT / "clients" / "spark"}
"""Where a package stands that is not in the root."""
_NAME = re.compile(r"`(\w+)/?`")
MAPPED = ("buckets", "jobqueue")
"""Packages of whose rooms CONTRIBUTING.md has a map."""
SMALL, ALARM = 80, 800  # lines
MAY_BE_SMALL = {
    "jobqueue.__main__": "`python -m jobqueue`",
    "jobqueue.cli.entry": "the command of the package, which loads nothing before it has to",
    "jobqueue.cli.console.command": "it is loaded with every command, what it starts is not",
    "jobqueue.cli.console.beside": "a process of its own",
    "jobqueue.console.pages": "a page is a module",
    "jobqueue.journal.migrations": "a version of the tables is a module",
    "jobqueue.testing": "only `serve --test` loads it",
    "jobqueue_client.testing.fixtures": "pytest loads it by its name, and nothing else needs pytest",
    "pyspark_jobqueue.pipelines.__main__": "`python -m pyspark_jobqueue.pipelines`",
}
"""Modules with one importer that are short, and why; a folder stands for all in it."""
PLUG_INS = (
    *("jobqueue.protocols", "jobqueue.sinks", "jobqueue.journal.stores", "jobqueue.journal.export"),
    *("jobqueue.journal.migrations", "jobqueue.console.pages", "jobqueue.cli"),
)
"""Folders in which a name may occur again, and that may have few files: each member is found by its place."""


def folder_of(module: str) -> Path:
    """The folder that the package of a module stands in."""
    return FOLDERS.get(module.partition(".")[0], ROOT)


def modules(package: str) -> list[str]:
    """The modules of a package with their full names; a folder's `__init__` is one, the package's own is none."""
    folder = folder_of(package)
    paths = sorted((folder / package).rglob("*.py"))
    names = [".".join(path.relative_to(folder).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names if name != f"{package}.__init__"]


def path_of(module: str) -> Path:
    """The file of a module. A folder beside it may be left of an older version, with nothing but its cache."""
    path = folder_of(module).joinpath(*module.split("."))
    file = path.with_suffix(".py")
    return file if file.exists() else path / "__init__.py"


def source_of(module: str) -> str:
    return path_of(module).read_text()


def stratum(module: str) -> int | None:
    """How high the stratum of a module is in its package; None when it is in none."""
    package, _, name = module.partition(".")
    top = name.partition(".")[0]
    return next((height for height, held in enumerate(STRATA[package].values()) if top in held), None)


@functools.cache
def imports(module: str, source: str) -> set[str]:
    """The modules of ours that a source imports, wherever the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = importlib.util.resolve_name("." * node.level + (node.module or ""), module.rpartition(".")[0])
            found.update(full if _is_module(full := f"{name}.{alias.name}") else name for alias in node.names)
    return {name for name in found if name.partition(".")[0] in {*STRATA, "tests", "clients"}}


@functools.cache
def _is_module(name: str) -> bool:
    path = folder_of(name).joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def member_of(module: str) -> tuple[str, str] | None:
    """The family that a module belongs to and the name of its member, empty for the contract."""
    for family in FAMILIES:
        if module == family or module.startswith(f"{family}."):
            return family, module.removeprefix(family).lstrip(".").partition(".")[0]
    return None


def faults(module: str, source: str) -> list[str]:
    """What is wrong with the imports of a module, in words."""
    return [fault for name in sorted(imports(module, source)) if (fault := _fault(module, name))]


def _fault(module: str, name: str) -> str | None:
    package, other = module.partition(".")[0], name.partition(".")[0]
    own, height = stratum(module), stratum(name) if other == package else None
    if own is None:
        return f"{module} is in no stratum"
    if other != package:
        return None if _may_use(module, other) else f"{module} imports {name}"
    if name == package:  # it is below all as long as it imports nothing: a version number
        return f"{module} imports its own package, not a module of it" if imports(package, source_of(package)) else None
    if name == module:
        return f"{module} imports itself"
    if height is None or height > own:
        return f"{module} imports {name}, which is {'in no stratum' if height is None else 'above it'}"
    return _fault_of_members(module, name) if _is_allowed(module, name) else f"{module} may not use {name}"


def _is_allowed(module: str, name: str) -> bool:
    """Whether a part that uses only a little of ours may use this."""
    little = [allowed for part, allowed in ONLY.items() if f"{module}.".startswith(f"{part}.")]
    return all(any(f"{name}.".startswith(f"{each}.") for each in allowed) for allowed in little)


def _may_use(module: str, other: str) -> bool:
    if other not in ("jobqueue_client", module.partition(".")[0]) and not _is_allowed(module, other):
        return False
    parts = [uses for part, uses in MAY_USE.items() if f"{module}.".startswith(f"{part}.")]
    return any(other in uses for uses in parts)


def _fault_of_members(module: str, name: str) -> str | None:
    """A member imports no other member, and the contract imports none."""
    one, other = member_of(module), member_of(name)
    if one is None or other is None or one[0] != other[0] or not other[1] or one[1] == other[1]:
        return None
    return f"{module} imports {name}, another member of {one[0]}"


@pytest.mark.parametrize("package", STRATA)
def test_imports_go_one_way(package: str) -> None:
    assert modules(package)
    for module in modules(package):
        assert stratum(module) is not None, f"{module} is in no stratum"
        assert faults(module, source_of(module)) == []


@pytest.mark.parametrize("package", STRATA)
def test_no_modules_import_each_other(package: str) -> None:
    graph = {module: imports(module, source_of(module)) - {package} for module in modules(package)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"they import each other: {' -> '.join(error.args[1])}")


def _is_below(module: str, folders: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{folder}.") for folder in folders)


def files(package: str) -> list[str]:
    """The modules of a package that are files of their own."""
    return [module for module in modules(package) if path_of(module).name != "__init__.py"]


@functools.cache
def importers() -> Counter[str]:
    """How many modules of ours import each."""
    return Counter(name for package in STRATA for each in modules(package) for name in imports(each, source_of(each)))


@pytest.mark.parametrize("package", STRATA)
def test_a_module_is_a_thing(package: str) -> None:
    lines = {module: source_of(module).count("\n") for module in files(package)}
    assert {module: number for module, number in lines.items() if number >= ALARM} == {}
    lonely = {module for module, number in lines.items() if number < SMALL and importers()[module] < 2}
    assert {module for module in lonely if not _is_below(module, MAY_BE_SMALL)} == set()
    own = [part for part in MAY_BE_SMALL if part.startswith(f"{package}.")]
    assert [part for part in own if not any(_is_below(module, [part]) for module in lonely)] == []


@pytest.mark.parametrize("package", STRATA)
def test_a_name_says_which_file_is_meant(package: str) -> None:
    names = defaultdict[tuple[str, str], list[str]](list)
    for module in files(package):
        if module.count(".") > 1 and not _is_below(module, PLUG_INS):
            names[module.split(".")[1], module.rpartition(".")[2]].append(module)
    assert [same for same in names.values() if len(same) > 1] == []


@pytest.mark.parametrize("package", STRATA)
def test_a_folder_holds_three_files_at_least(package: str) -> None:
    held = Counter(str(path.parent) for path in (folder_of(package) / package).rglob("*.py"))
    plug_ins = [str(ROOT.joinpath(*folder.split("."))) for folder in PLUG_INS]
    few = {folder for folder, number in held.items() if number < 3}
    assert {folder for folder in few if not any(f"{folder}/".startswith(f"{each}/") for each in plug_ins)} == set()


@pytest.mark.parametrize("package", MAPPED)
def test_the_map_names_every_room(package: str) -> None:
    """CONTRIBUTING.md, "Map": a table for each package, a row for each room, and the modules that the row mentions."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition(f"| `{package}/` |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    rooms = {room: about for names, about in rows for room in _NAME.findall(names)}
    assert rooms.keys() - {"lua"} == {name for held in STRATA[package].values() for name in held} - {"__main__"}
    for room, about in rooms.items():
        there = {path.stem for path in (ROOT / package / room).rglob("*")}
        assert {name for name in _NAME.findall(about) if name not in there} == set(), room


@pytest.mark.parametrize("package", STRATA)
def test_the_strata_name_nothing_that_is_gone(package: str) -> None:
    there = {module.split(".")[1] for module in modules(package)}
    assert {name for held in STRATA[package].values() for name in held} == there


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        (
            "buckets.job",
            "from buckets.pool.pool import Pool",
            "buckets.job imports buckets.pool.pool, which is above it",
        ),
        ("buckets.job", "from buckets import pool", "buckets.job imports buckets.pool, which is above it"),
        ("buckets.job", "from .pages import Pages", "buckets.job imports buckets.pages, which is above it"),
        ("buckets.job", "from . import pool", "buckets.job imports buckets.pool, which is above it"),
        ("buckets.job", "import buckets.job", "buckets.job imports itself"),
        ("buckets.job", "import jobqueue.web.site", "buckets.job imports jobqueue.web.site"),
        (
            "buckets.redis.link",
            "from buckets.shards import Shards",
            "buckets.redis.link imports buckets.shards, which is above it",
        ),
        ("buckets.timers.timer", "def f():\n  import jobqueue", "buckets.timers.timer imports jobqueue"),
        (
            "jobqueue.engine.engine",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  from jobqueue.web.site import Web",
            "jobqueue.engine.engine imports jobqueue.web.site, which is above it",
        ),
        (
            "jobqueue.protocols.a",
            "import jobqueue.protocols.b",
            "jobqueue.protocols.a imports jobqueue.protocols.b, another member of jobqueue.protocols",
        ),
        (
            "jobqueue.sinks.a.caller",
            "import jobqueue.sinks.b.caller",
            "jobqueue.sinks.a.caller imports jobqueue.sinks.b.caller, another member of jobqueue.sinks",
        ),
        (
            "jobqueue.protocols",
            "import jobqueue.protocols.b",
            "jobqueue.protocols imports jobqueue.protocols.b, another member of jobqueue.protocols",
        ),
        ("jobqueue.helpers", "import jobqueue.errors", "jobqueue.helpers is in no stratum"),
        (
            "buckets.pool.pool",
            "from buckets import Pool",
            "buckets.pool.pool imports its own package, not a module of it",
        ),
        ("jobqueue.app", "from clients.python import x", "jobqueue.app imports clients.python"),
        ("jobqueue.app", "from jobqueue_client import Job", "jobqueue.app imports jobqueue_client"),
        (
            "jobqueue.sinks.webhook.caller",
            "import pyspark_jobqueue",
            "jobqueue.sinks.webhook.caller imports pyspark_jobqueue",
        ),
        (
            "jobqueue_client.job",
            "from jobqueue.sinks.webhook.caller import x",
            "jobqueue_client.job imports jobqueue.sinks.webhook.caller",
        ),
        (
            "jobqueue_client.job",
            "from jobqueue.access.caller import x",
            "jobqueue_client.job imports jobqueue.access.caller",
        ),
        ("jobqueue_client.job", "from buckets import Job", "jobqueue_client.job imports buckets"),
    ],
)
def test_what_goes_up_is_found(module: str, source: str, fault: str) -> None:
    assert faults(module, source) == [fault]


def test_what_goes_down_is_right() -> None:
    assert faults("buckets.pool.pool", "from buckets.job import Job\nimport redis, buckets.keys") == []
    assert faults("jobqueue.engine.engine", "from buckets import Pool\nfrom jobqueue.errors import Bad") == []
    assert faults("jobqueue.protocols.a", "from jobqueue.protocols import Reply") == []


def test_the_console_uses_nothing_of_the_engine() -> None:
    assert faults("jobqueue.console.a", "from jobqueue.cli.client import Client\nimport jobqueue_client.job") == []
    assert faults("jobqueue.console.pages.a", "from jobqueue.console.visit import Visit") == []
    for source in (
        "from buckets.job import State",
        "from jobqueue.settings import Settings",
        "import jobqueue.cli.ask",
    ):
        assert len(faults("jobqueue.console.a", source)) == 1


def test_the_workers_of_sinks_use_the_client() -> None:
    source = "from jobqueue_client import Worker\nfrom jobqueue_client.worker import Worker"
    assert faults("jobqueue.sinks.webhook.worker", source) == []
    fault = "jobqueue.sinks.nats imports jobqueue_client"
    assert faults("jobqueue.sinks.nats", "import jobqueue_client") == [fault]
