"""The layers: a module imports only from modules below it, `TYPE_CHECKING` included, and every module is in one."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# From the bottom up. A name with `.*` stands for the members of a folder, which do not know each other; its `__init__`
# is the contract below them.
LAYERS = {
    "buckets": [
        "errors",
        "redis",
        "timers",
        "durability",
        "fsck",
        "clock",
        "keys",
        "job",
        "scripts",
        "meter",
        "redis.link",
        "redis.url",
        "redis.server",
        "redis.standalone",
        "redis.sentinels",
        "redis.cluster",
        "redis.client",
        "shards",
        "coalesce",
        "add_codec",
        "ready_shards",
        "pop_search",
        "pool",
        "durability.barrier",
        "durability.durable",
        "topics",
        "walk",
        "pages",
        "namespace",
        "fsck.findings",
        "fsck.counts",
        "fsck.check",
        "migration",
        "bell",
        "timers.clock_jumps",
        "timers.assignment",
        "timers.members",
        "timers.locks",
        "timers.precise_sleep",
        "timers.lead_time",
        "timers.timer",
        "timers.sweep",
        "public",
    ],
    "jobqueue": [
        *(
            "errors",
            "settings",
            "logs",
            "tasks",
            "cores",
            "ports",
            "fields",
            "bodies",
            "params",
            "explaining",
            "reading",
            "policies",
            "series",
            "shared_metrics",
            "metrics",
            "totals",
            "cursors",
            "fitness",
            "redis_program",
            "torn_file",
            "embedded",
            "service_redis",
            "engine",
            "answers",
            "commands",
            "shapes",
            "entries",
            "reference",
            "openapi",
        ),
        *("protocols", "protocols.*", "scrape", "refusals", "plain", "limits", "connection", "runner", "web", "app"),
        *("lifetime", "orders", "worker", "crew", "supervisor"),
        *("options", "words", "tables", "client", "output", "conversation", "bulk", "watch", "client_cli"),
        *("callbacks", "callbacks.callback", "callbacks.signature", "callbacks.addresses", "callbacks.verdicts"),
        *("callbacks.places", "callbacks.caller", "callbacks.worker", "callbacks.command"),
        *("check", "inspection", "moving", "cli"),
    ],
    "jobqueue_client": [
        *("times", "job", "fields", "answers", "errors", "options"),
        *("commands", "replies", "retry", "exchange"),
        *("connections", "client", "sessions", "async_client"),
        *("events", "outcomes", "threads", "reach", "loops", "ends", "leases", "crew", "polling", "outbox"),
        *("shift", "worker"),
    ],
    "pyspark_jobqueue": [
        *("errors", "options", "service", "java", "session", "jobs_schema"),
        *("columns", "write_options", "row_batches", "commands", "pace", "lanes", "folders", "refusals", "sums"),
        *("progress", "write_task", "writer", "read_options", "batches", "reader"),
        *("source", "pipelines", "pipelines.report", "pipelines.expressions", "pipelines.flags"),
        *("pipelines.backlog", "pipelines.histogram", "pipelines.picture"),
        *("pipelines.inputs", "pipelines.callback", "pipelines.jobs"),
        *("pipelines.writing", "pipelines.lookup", "pipelines.mark_file", "pipelines.increment"),
        *("pipelines.events", "pipelines.folding", "pipelines.micro_batch", "pipelines.comparison", "pipelines.*"),
    ],
}
WORKER, CLIENT = "jobqueue.callbacks.", "jobqueue_client"
"""The callback worker is a consumer like any other: its modules, and no others of the service, use the client."""
FOLDERS = {"jobqueue_client": ROOT / "clients" / "python", "pyspark_jobqueue": ROOT / "clients" / "spark"}
"""Where a package stands that is not in the root."""


def folder_of(module: str) -> Path:
    """The folder that the package of a module stands in."""
    return FOLDERS.get(module.partition(".")[0], ROOT)


def modules(package: str) -> list[str]:
    """The modules of a package with their full names; a folder's `__init__` is one, the package's own is none."""
    folder = folder_of(package)
    paths = sorted((folder / package).rglob("*.py"))
    names = [".".join(path.relative_to(folder).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names if name != f"{package}.__init__"]


def source_of(module: str) -> str:
    path = folder_of(module).joinpath(*module.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def layer(module: str) -> int | None:
    """How high a module stands in its package; None when it is in no layer."""
    package, _, name = module.partition(".")
    for height, known in enumerate(LAYERS[package]):
        if name == known or (known.endswith(".*") and name.startswith(known[:-1])):
            return height
    return None


def imports(module: str, source: str) -> set[str]:
    """The modules of ours that a source imports, wherever the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = importlib.util.resolve_name("." * node.level + (node.module or ""), module.rpartition(".")[0])
            found.update(full if _is_module(full := f"{name}.{alias.name}") else name for alias in node.names)
    return {name for name in found if name.partition(".")[0] in {*LAYERS, "tests", "clients"}}


def _is_module(name: str) -> bool:
    path = folder_of(name).joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def faults(module: str, source: str) -> list[str]:
    """What is wrong with the imports of a module, in words."""
    package = module.partition(".")[0]
    own = layer(module)
    if own is None:
        return [f"{module} is in no layer"]
    found = []
    for name in sorted(imports(module, source)):
        other = name.partition(".")[0]
        if other == package:
            height = layer(name)
            if name == package:
                if imports(package, source_of(package)):  # else it is below all: a version number
                    found.append(f"{module} imports its own package, not a module of it")
            elif height is None:
                found.append(f"{module} imports {name}, which is in no layer")
            elif height >= own:
                found.append(f"{module} imports {name}, which is not below it")
        elif (package, other) != ("jobqueue", "buckets") and not (module.startswith(WORKER) and other == CLIENT):
            found.append(f"{module} imports {name}")
    return found


@pytest.mark.parametrize("package", LAYERS)
def test_imports_go_one_way(package: str) -> None:
    assert modules(package)
    for module in modules(package):
        assert faults(module, source_of(module)) == []


@pytest.mark.parametrize("package", ["buckets", "jobqueue_client"])
def test_the_list_of_layers_names_no_module_that_is_gone(package: str) -> None:
    assert {f"{package}.{name}" for name in LAYERS[package]} == set(modules(package))


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("buckets.job", "from buckets.pool import Pool", "buckets.job imports buckets.pool, which is not below it"),
        ("buckets.job", "from buckets import pool", "buckets.job imports buckets.pool, which is not below it"),
        ("buckets.job", "from .pool import Pool", "buckets.job imports buckets.pool, which is not below it"),
        ("buckets.job", "from . import pool", "buckets.job imports buckets.pool, which is not below it"),
        ("buckets.job", "import buckets.job", "buckets.job imports buckets.job, which is not below it"),
        ("buckets.job", "import jobqueue.web", "buckets.job imports jobqueue.web"),
        ("buckets.timers.timer", "def f():\n  import jobqueue", "buckets.timers.timer imports jobqueue"),
        (
            "jobqueue.engine",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  from jobqueue.web import App",
            "jobqueue.engine imports jobqueue.web, which is not below it",
        ),
        (
            "jobqueue.protocols.a",
            "import jobqueue.protocols.b",
            "jobqueue.protocols.a imports jobqueue.protocols.b, which is not below it",
        ),
        (
            "jobqueue.protocols",
            "import jobqueue.protocols.b",
            "jobqueue.protocols imports jobqueue.protocols.b, which is not below it",
        ),
        ("jobqueue.helpers", "", "jobqueue.helpers is in no layer"),
        ("buckets.pool", "from buckets import Pool", "buckets.pool imports its own package, not a module of it"),
        ("jobqueue.web", "from clients.python import x", "jobqueue.web imports clients.python"),
        ("jobqueue.web", "from jobqueue_client import Job", "jobqueue.web imports jobqueue_client"),
        ("jobqueue.callbacks.caller", "import pyspark_jobqueue", "jobqueue.callbacks.caller imports pyspark_jobqueue"),
        (
            "jobqueue.callbacks.places",
            "from jobqueue.callbacks.caller import x",
            "jobqueue.callbacks.places imports jobqueue.callbacks.caller, which is not below it",
        ),
        (
            "jobqueue_client.job",
            "from jobqueue.callbacks.caller import x",
            "jobqueue_client.job imports jobqueue.callbacks.caller",
        ),
        ("jobqueue_client.job", "from jobqueue.answers import x", "jobqueue_client.job imports jobqueue.answers"),
        ("jobqueue_client.job", "from buckets import Job", "jobqueue_client.job imports buckets"),
        (
            "jobqueue_client.exchange",
            "from jobqueue_client.client import Client",
            "jobqueue_client.exchange imports jobqueue_client.client, which is not below it",
        ),
    ],
)
def test_what_goes_up_is_found(module: str, source: str, fault: str) -> None:
    assert faults(module, source) == [fault]


def test_what_goes_down_is_right() -> None:
    assert faults("buckets.pool", "from buckets.job import Job\nimport redis, buckets.keys") == []
    assert faults("jobqueue.engine", "from buckets import Pool\nfrom jobqueue.errors import Bad") == []


def test_the_callback_worker_alone_uses_the_client() -> None:
    source = "from jobqueue_client import Worker\nfrom jobqueue_client.worker import Worker"
    assert faults("jobqueue.callbacks.worker", source) == []
    assert faults("jobqueue.client_cli", "import jobqueue_client") == ["jobqueue.client_cli imports jobqueue_client"]
