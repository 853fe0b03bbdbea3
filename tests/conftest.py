"""Fixtures that all tests share: a private Redis, a pool on it, and a clock under the test's control."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling

from buckets.clock import HeldClock
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests import groups
from tests.kit.redis_server import RedisServer

# The same examples in every run, however slow the machine; a failure prints how to reproduce it.
settings.register_profile("jobqueue", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("jobqueue")

# A shell makes what it starts in the background ignore Ctrl-C, and nohup SIGHUP; so would everything that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# All of Spark's files go to the first process, and take longest: the others leave it the core that it wants.
if os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
    os.nice(5)


def pytest_addoption(parser: pytest.Parser) -> None:
    said = "; ".join(f"{name}: {group.says}" for name, group in groups.GROUPS.items())
    parser.addoption("--group", choices=groups.GROUPS, help=f"only the tests of a group, which may skip none. {said}")


def _group(config: pytest.Config) -> str | None:
    name: str | None = config.getoption("group")
    return name


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    group = _group(config)
    if group and (collection_path.suffix == ".py" or collection_path.is_dir()):
        return not groups.may_have(group, collection_path.relative_to(groups.ROOT).as_posix()) or None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The garbage collector never looks at what is there once all tests are collected: it would find nothing, and it
    took a fifth of the time of collecting."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a group nothing may be skipped, or be expected to fail."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and _group(session.config) and any(map(reporter.stats.get, ("skipped", "xfailed", "xpassed"))):
        reporter.write_line("a test was skipped or expected to fail; in a group each has to run and pass", red=True)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


_BROKER = re.compile(r".*brokers/test_suite.*\[(.+?)(?:-killed|-frozen)?\]$")


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """One file per process at a time. All of Spark's files go to one process, which starts and warms up a JVM; of the
    suite of all brokers, the tests of a broker do."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if found := _BROKER.match(nodeid):
            return f"{file} {found[1]}"
        return "spark" if file.startswith("tests/spark/") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduling:
    return _Scheduling(config, log)


# These take longest: run last, one of them would keep a single process busy at the end.
_FIRST = (
    *("tests/spark/", "brokers/test_suite.py", "brokers/test_faults.py", "buckets/test_model.py", "test_cluster.py"),
    *("test_redis_sets.py", "test_sentinels.py", "tests/chaos/", "tests/fuzz/", "test_timers", "test_random_damage.py"),
    *("conformance/test_scenario.py", "acceptance/test_workers.py", "doors/test_doors.py", "check/test_refusals.py"),
    *("test_scopes.py", "console/test_pages.py", "test_clicks.py", "test_users_acl.py", "test_redis_lost.py"),
    *("test_late_faults.py", "packaging/test_make.py", "packaging/test_upgrade.py", "proxies/test_upgrade.py"),
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only those of the group. Slow files first, Spark's before all others. A whole run of a group checks
    its patterns."""
    if group := _group(config):
        if config.args == config.getini("testpaths") and not config.getoption("lf", default=False):
            idle = groups.idle(group, {item.nodeid: getattr(item, "fixturenames", ()) for item in items})
            if idle:
                raise ValueError(f"tests/groups.py: the group {group} has no test by {', '.join(idle)}")
        own = [item for item in items if groups.has(group, item.nodeid, getattr(item, "fixturenames", ()))]
        config.hook.pytest_deselected(items=list(set(items).difference(own)))
        items[:] = own
    places = {part: place for place, part in enumerate(_FIRST)}
    items.sort(key=lambda item: min(place if part in item.nodeid else len(_FIRST) for part, place in places.items()))


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command that ran in this process has set up the logs; the next test finds them as pytest has them."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The Redis that tests share; a test that kills or fills its Redis takes `own_server`."""
    # Not pytest's own folder: the path of a Unix socket has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A Redis that belongs to one test, which may do anything to it."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as server:
        yield server


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """A connection to an empty Redis, which is empty again afterwards: not every test takes this fixture."""
    connection = Redis(redis_server.url)
    await connection.read("FLUSHALL")
    await connection.read("CONFIG", "RESETSTAT")
    yield connection
    await connection.read("FLUSHALL")
    await connection.close()


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
async def pool(redis: Redis, clock: HeldClock) -> AsyncIterator[Pool]:
    """A pool of one shard on the clock that the test controls."""
    pool = await Pool.open(redis, clock=clock)
    yield pool
    await pool.close()


@pytest.fixture
async def live_pool(redis: Redis) -> AsyncIterator[Pool]:
    """A pool of one shard on Redis's own clock."""
    pool = await Pool.open(redis)
    yield pool
    await pool.close()
