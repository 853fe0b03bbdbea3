"""Findings about how a service is set up: packages, settings, workers, protocols."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution

from jobqueue.access.connections import open_files
from jobqueue.dialect_settings import addresses
from jobqueue.errors import SettingsError
from jobqueue.health.findings import Finding
from jobqueue.settings import Settings
from jobqueue.workers.cores import usable, workers_for

_SERVICE, _CLIENT = "jobqueue", "jobqueue-client"  # distributions


def check_packages() -> Iterator[Finding]:
    """A client that was installed beside the service shares its files with the one that the service's package has."""
    installed = set()
    for name in (_SERVICE, _CLIENT):
        with contextlib.suppress(PackageNotFoundError):
            installed.add(distribution(name).name)
    if installed == {_SERVICE, _CLIENT}:
        yield Finding(
            "warn",
            "packages",
            f"{_CLIENT} is installed beside {_SERVICE}, which contains it: uninstalling either removes files of the"
            f" other. Uninstall both, then install {_SERVICE} alone",
        )


def told_settings(names: Sequence[str], place: str = "") -> Finding:
    """Which settings are set. `place`: the Redis and the namespace that they name."""
    words = f"{', '.join(names)} set, the others have their defaults" if names else "all have their defaults"
    return Finding("ok", "settings", f"{words}. {place}" if place else words)


def check_workers(chosen: Settings) -> Finding:
    """How many processes answer, compared with the cores available."""
    cores = usable()
    try:
        number = workers_for(chosen.workers)
    except SettingsError as error:
        return Finding("bad", "workers", str(error))
    sentence = f"serve starts {number}; cores available: {cores}"
    if number > cores:
        return Finding("warn", "workers", f"{sentence}; more workers than cores make it slower, not faster")
    return Finding("ok", "workers", sentence)


def check_connections(chosen: Settings) -> Iterator[Finding]:
    """Whether a process of this user may open as many files as it may have connections."""
    most, files = open_files(chosen.max_connections)
    if most < chosen.max_connections:
        yield Finding(
            "warn",
            "connections",
            f"a process that is started here accepts {most:,} of max_connections {chosen.max_connections:,}, as it may"
            f" open {files:,} files: raise that (ulimit -n, or LimitNOFILE of the unit)",
        )


def told_protocols(chosen: Settings) -> Iterator[Finding]:
    """Where the dialects listen."""
    for name, address in addresses(chosen.protocols, chosen.host).items():
        yield Finding("ok", f"protocols.{name}", f"at {address}")
