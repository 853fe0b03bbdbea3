"""The groups of tests: which tests are in each, and what it needs beyond what `make setup-test` installs.

`python -m tests.groups NAME` runs one, as the make targets do. A test that no group names is in the group `test`, which
is `make test`: it needs nothing more, and each of its tests has one chance. A test of another group that fails is run
again, alone and once; if it passes then, the run goes on and ends with a line `flaky: TEST`. A run of a whole group
fails if one of its patterns is for no test.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARALLEL = ("--dist", "loadfile", "--no-loadscope-reorder", "--durations", "15", "--durations-min", "5")
"""The tests of a file share what they start."""
_PROCESSES, _OF_A_GROUP = 5, 3
"""Tests wait more than they work: five processes keep two cores busy. Groups run two at a time."""
_MOST_AGAIN = 20
"""If more tests than this fail, the product is at fault, or the machine."""
_FAILED, _UNUSABLE = 1, 2  # exit codes


@dataclass(frozen=True)
class Need:
    """A program on PATH, or an absolute pattern of files, that a group needs.

    `packages`: those of Debian that have it; without any, the package has the program's name. `unpacked`: they are only
    unpacked and put on PATH, because to install them would start a server.
    """

    name: str
    packages: tuple[str, ...] = ()
    unpacked: bool = False

    @property
    def debian(self) -> tuple[str, ...]:
        return self.packages or (self.name,)

    def is_met(self) -> bool:
        return bool(glob(self.name) if self.name.startswith("/") else shutil.which(self.name))  # noqa: PTH207


@dataclass(frozen=True)
class Group:
    """Tests that need the same. `tests`: patterns of their ids, from the beginning; `fixtures`: those whose
    tests belong here, too. `again`: patterns of tests of any group that are run here too. `environment`: variables,
    unless they are set."""

    says: str
    needs: tuple[Need, ...] = ()
    tests: tuple[str, ...] = ()
    fixtures: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def _php(package: str, name: str) -> Need:
    return Need(f"/usr/share/php/{name}/autoload.php", (package,))


_REDIS = Need("redis-server")
_REDIS_CLI = Need("redis-cli", ("redis-tools",))
_NODE = (Need("node", ("nodejs",)), Need("npm"))
_DATABASES = (
    Need("/usr/lib/postgresql/*/bin/initdb", ("postgresql",)),
    Need("mariadbd", ("mariadb-server-core", "mariadb-client-core", "mariadb-common")),
)
_ERLANG = (
    *("asn1", "base", "crypto", "eldap", "ftp", "inets", "mnesia", "os-mon", "parsetools", "public-key"),
    *("runtime-tools", "snmp", "ssl", "syntax-tools", "tftp", "tools", "xmerl"),
)
_JAVA = Need("javac", ("openjdk-17-jdk-headless",))
# What Debian's HAProxy needs; HAProxy itself is only unpacked.
_HAPROXY = {"liblua5.3-0": "liblua5.3.so.0", "libopentracing-c-wrapper0": "libopentracing-c-wrapper.so.0"}

_LANGUAGE = r".*\[([^]]*-)?(php|node|js)[]-]"
_DATABASE = r".*\[([^]]*-)?(postgresql|mariadb)[]-]"
# Of the file itself, too: other tests of it need brokers.
_WITHOUT_BROKER = r"test_faults.py::($|test_(redis_stream|http|sql).*\[(redis-stream|http|sql-sqlite)[]-])"
_SERVER = r".*\[redis-server"

# The first group that names a test has it.
GROUPS = {
    "test": Group("everything that needs no more than `make setup-test` installs"),
    "faults": Group(
        "kills, failovers, random requests",
        (*_DATABASES, Need("/usr/lib/*/faketime/libfaketimeMT.so.1", ("libfaketime",))),
        (
            "tests/acceptance/test_(clocks|kills|late_faults)",
            "tests/access/doors/test_heads",
            "tests/access/rates/",
            "tests/buckets/redis/test_(cluster|sentinels)",
            "tests/chaos/test_",
            "tests/clients/gaps/.*python",
            "tests/fuzz/",
            "tests/jobqueue/engine/limits/test_load",
            "tests/jobqueue/journal/reading/test_(cluster|exactly_once|failover|fault_points)",
            "tests/jobqueue/journal/restoring/test_(kills|under_load)",
            "tests/jobqueue/journal/export/test_broken_off",
            "tests/operations/test_(operations_go_on|redis_lost|redis_sets)",
            "tests/wires/test_(fuzz|kills)",
        ),
        # Those that make random steps: `make test` has the first of them.
        again=(
            "tests/access/scopes/test_scopes",
            "tests/buckets/fsck/test_random_damage",
            "tests/buckets/test_model",
        ),
        environment={"TEST_MODEL_STEPS": "10000", "TEST_MODEL_SEED": "1", "TEST_DAMAGES": "160"},
    ),
    "redis": Group(
        "the engine on a redis-server",
        (_REDIS, _REDIS_CLI),
        (
            "tests/buckets/redis/test_tls",
            "tests/jobqueue/redis_server/test_embedded.*(redis_7|snapshot_that_the_program_may_not_read)",
            f"tests/jobqueue/redis_server/test_embedded{_SERVER}",
            f"tests/jobqueue/redis_server/test_fitness{_SERVER}",
            "tests/operations/test_(backup|users_acl)",
        ),
        again=("tests/buckets/",),
        environment={
            **{"TEST_MODEL_STEPS": "2000", "TEST_MODEL_SEED": "1", "TEST_DAMAGES": "30"},
            "TEST_REDIS": "redis-server",
        },
    ),
    "brokers": Group(
        "sinks with their brokers",
        (
            *_DATABASES,
            _JAVA,
            Need("erl", tuple(f"erlang-{name}" for name in _ERLANG)),
            Need("/usr/share/java/activemq-broker.jar", ("libactivemq-java",)),
            *(Need(name, unpacked=True) for name in ("nats-server", "rabbitmq-server", "activemq")),
        ),
        (f"tests/jobqueue/sinks/brokers/(?!{_WITHOUT_BROKER})",),
    ),
    "databases": Group(
        "journals in PostgreSQL and MariaDB",
        _DATABASES,
        (
            f"tests/jobqueue/(journal|outbox)/{_DATABASE}",
            f"tests/spark/connector/test_history{_DATABASE}",
            "tests/jobqueue/journal/test_servers",
        ),
        fixtures=("postgresql", "mariadb"),
    ),
    "clients": Group(
        "clients in PHP and Node, and foreign clients",
        (
            *_NODE,
            *_DATABASES,
            Need("php", ("php-cli",)),
            Need("/etc/php/*/cli/conf.d/*-curl.ini", ("php-curl",)),
            *(
                Need(f"/etc/php/*/cli/conf.d/*-pdo_{driver}.ini", (package,))
                for driver, package in (("sqlite", "php-sqlite3"), ("pgsql", "php-pgsql"), ("mysql", "php-mysql"))
            ),
            *_DATABASES,
            Need("composer"),
            Need("phpunit"),
            _php("php-psr-log", "Psr/Log"),
            _php("php-monolog", "Monolog"),
            _php("php-illuminate-queue", "Illuminate/Queue"),
            _php("php-illuminate-events", "Illuminate/Events"),
            _php("php-illuminate-bus", "Illuminate/Bus"),
            _php("php-illuminate-database", "Illuminate/Database"),
            _php("php-doctrine-dbal", "Doctrine/DBAL"),
            _php("php-symfony-messenger", "Symfony/Component/Messenger"),
            _php("php-symfony-event-dispatcher", "Symfony/Component/EventDispatcher"),
            _JAVA,
            Need("beanstalkd", unpacked=True),
        ),
        (
            "tests/clients/php/",
            "tests/clients/test_(node|packages|testing_page)",
            f"tests/clients/{_LANGUAGE}",
            "tests/conformance/test_(node|php)",
            f"tests/conformance/{_LANGUAGE}",
            f"tests/documents/test_(migrating|recurring|schedules){_LANGUAGE}",
            "tests/jobqueue/protocols/beanstalkd/test_exchanges.*beanstalkd",
            "tests/jobqueue/protocols/beanstalkd/test_runs.*beanstalkd",
            "tests/jobqueue/protocols/camellia/test_service.*java",
            "tests/jobqueue/protocols/queue_server/test_php",
            f"tests/jobqueue/sinks/webhook/test_receivers{_LANGUAGE}",
            "tests/jobqueue/web/test_fast_path.*node",
            "tests/wires/test_beanstalkd_clients",
        ),
    ),
    "browser": Group(
        "pages in Chromium",
        (Need("chromium"),),
        (
            "tests/jobqueue/access/test_chromium",
            "tests/jobqueue/console/(test_(clicks|hostile|operations|pages|tls.*browser)|pages/test_forecast)",
        ),
        fixtures=("browser",),
    ),
    "spark": Group(
        "streams of Spark, and Spark Connect",
        (),
        ("tests/spark/.*test_(connect|stream|write_stream|java)",),
    ),
    "deploy": Group(
        "what is in deploy/, packages and upgrades",
        (
            _REDIS,
            _REDIS_CLI,
            Need("git"),
            Need("groff", ("groff-base",)),
            Need("systemd-analyze", ("systemd",)),
            *(Need(f"/usr/lib/*/{file}", (name,)) for name, file in _HAPROXY.items()),
            *(Need(name, unpacked=True) for name in ("haproxy", "nginx", "prometheus-redis-exporter")),
            Need("promtool", ("prometheus",), unpacked=True),
        ),
        ("tests/deploy/", "tests/packaging/", "tests/acceptance/test_metrics.*promtool"),
    ),
}


@functools.cache
def _patterns(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns) or "(?!)")


def group_of(test: str, fixtures: Sequence[str] = ()) -> str:
    """The group of a test, by its id and the fixtures that it uses."""
    for name, group in GROUPS.items():
        if _patterns(*group.tests).match(test) or not set(group.fixtures).isdisjoint(fixtures):
            return name
    return "test"


def has(name: str, test: str, fixtures: Sequence[str]) -> bool:
    """Whether a group runs a test."""
    return group_of(test, fixtures) == name or bool(_patterns(*GROUPS[name].again).match(test))


def may_have(name: str, path: str) -> bool:
    """Whether a group may run a test of a file or folder; to collect the others would take most of its time."""
    if name == "test":
        return group_of(f"{path}::") == "test"  # also if the file has tests of several groups
    begins = [re.match(r"[\w/]*", pattern) for pattern in (*GROUPS[name].tests, *GROUPS[name].again)]
    return any(path.startswith(each[0]) or each[0].startswith(f"{path}/") for each in begins if each)


def idle(name: str, tests: Mapping[str, Sequence[str]]) -> list[str]:
    """The patterns and fixtures of a group by which it has no test. `tests`: the ids of all tests that may be in it,
    each with its fixtures."""
    group = GROUPS[name]
    own = {test: fixtures for test, fixtures in tests.items() if group_of(test, fixtures) == name}
    used = {fixture for fixtures in own.values() for fixture in fixtures}
    return [
        *(each for each in group.tests if not any(map(re.compile(each).match, own))),
        *(each for each in group.again if not any(map(re.compile(each).match, tests))),
        *(each for each in group.fixtures if each not in used),
    ]


def missing(name: str) -> list[Need]:
    """The needs of a group that are not met here."""
    return [need for need in GROUPS[name].needs if not need.is_met()]


def run(name: str) -> int:
    """Run a group; returns the exit code."""
    cache = ROOT / ".pytest_cache" / name
    shutil.rmtree(cache, ignore_errors=True)
    # One word: pytest would take the second for a folder of that name.
    command = (sys.executable, "-m", "pytest", f"--group={name}", "-o", f"cache_dir={cache}")
    processes = _PROCESSES if name == "test" else _OF_A_GROUP
    # With the first, thousands of processes would compile their modules again. The second is of the make that runs
    # this, and not for those that tests run.
    unwanted = ("PYTHONDONTWRITEBYTECODE", "MAKEFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    environment = {**GROUPS[name].environment, **environment}
    parallel = ("-n", str(processes), *PARALLEL)
    first = subprocess.run([*command, *parallel], cwd=ROOT, env=environment, check=False).returncode
    failed = _failed(cache)
    if first != _FAILED or name == "test" or not failed or len(failed) > _MOST_AGAIN:
        return first
    print(f"\nagain, alone: {len(failed)} tests that failed", flush=True)
    second = subprocess.run([*command, "-n", "1", "--last-failed"], cwd=ROOT, env=environment, check=False).returncode
    again = _failed(cache) if second else ()
    for test in failed:
        if test not in again:
            print(f"flaky: {test}", flush=True)
    return second


def _failed(cache: Path) -> tuple[str, ...]:
    """The ids of the tests that failed in the last run."""
    file = cache / "v" / "cache" / "lastfailed"
    return tuple(json.loads(file.read_text())) if file.exists() else ()


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.groups", description=__doc__)
    parser.add_argument(
        "name", choices=GROUPS, help="; ".join(f"{name}: {group.says}" for name, group in GROUPS.items())
    )
    parser.add_argument("--packages", choices=("install", "unpack"), help="only print Debian's packages that it lacks")
    wanted = parser.parse_args(given)
    os.environ["PATH"] += ":/usr/sbin"  # where Debian has some servers
    lacks = missing(wanted.name)
    if wanted.packages:
        chosen = [need for need in lacks if need.unpacked == (wanted.packages == "unpack")]
        print(*(package for need in chosen for package in need.debian))
        return 0
    if lacks:
        packages = " ".join(package for need in lacks for package in need.debian)
        print(f"{wanted.name}: missing {', '.join(need.name for need in lacks)} (Debian: {packages})", file=sys.stderr)
        return _UNUSABLE
    return run(wanted.name)


if __name__ == "__main__":
    sys.exit(main())
