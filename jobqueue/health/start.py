"""How a service is set up, and why it may refuse to start, before it asks its Redis (jobqueue/redis_server/opening.py
checks the Redis).

`serve` and `jobqueue check` share one list of refusals: `serve` ends at the first, `jobqueue check` reports each, in
the same words.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from buckets.errors import JobQueueError, Unfit
from jobqueue.access import modes, tls, token_table
from jobqueue.access.connections import open_files
from jobqueue.access.unix_socket import check_path
from jobqueue.dialect_settings import addresses
from jobqueue.errors import SettingsError
from jobqueue.health.findings import Finding, Findings
from jobqueue.journal.url import Refused, address
from jobqueue.process import refusal
from jobqueue.redis_server.data_directory import check_writable
from jobqueue.settings import Settings, shared_metrics_folder
from jobqueue.web.port import blamed_on, check_datagrams_free, check_free
from jobqueue.workers import console
from jobqueue.workers.cores import usable, workers_for

Judgement = tuple[str, Callable[[], Awaitable[None]]]
"""A subject, and a function that raises Unfit or OSError if no service can start with it. The function changes
nothing."""


async def check_may_start(settings: Settings) -> None:
    """Raise Unfit or OSError for the first thing that keeps a service from starting."""
    for _, judge in (*_of_settings(settings), *_of_places(settings)):
        await judge()


async def check_start(settings: Settings, *, runs: bool) -> Findings:
    """A bad finding for each thing that keeps a service from starting. `runs`: True if a service with these settings is
    running, and therefore has the ports and the socket."""
    for subject, judge in (*_of_settings(settings), *(() if runs else _of_places(settings))):
        try:
            await judge()
        except (JobQueueError, OSError) as error:
            yield Finding("bad", subject, refusal(error, settings))


def _of_settings(settings: Settings) -> Iterator[Judgement]:
    yield "access", partial(modes.check_may_start, settings)
    if settings.access == "tokens" and settings.tokens_file:
        yield "tokens_file", partial(_tokens_file, settings.tokens_file)
    if settings.tls_cert:
        yield "tls", partial(_tls, settings)
    if settings.journal_run:
        yield "journal", partial(_journal, settings.journal)
    if settings.console_port:
        yield "console", partial(console.check_may_start, settings)
    if folder := shared_metrics_folder():
        yield "metrics", partial(_metrics_folder, folder)


def _of_places(settings: Settings) -> Iterator[Judgement]:
    """The ports and the socket on which the service listens."""
    yield "port", partial(check_free, settings.host, settings.port)
    for name, options in settings.protocols.open():
        if options.port:
            yield f"protocols.{name}", partial(_port, f"protocols.{name}", settings.host, options.port)
    yield "udp", partial(check_datagrams_free, settings)
    if settings.console_port:
        part = "the console (console_port)"
        yield "console", partial(_port, part, settings.console_host, settings.console_port)
    if settings.socket:
        yield "socket", partial(_socket, settings.socket)


async def _tokens_file(path: str) -> None:
    try:
        await asyncio.to_thread(token_table.read, path)  # the file may be long
    except SettingsError as error:
        raise Unfit(str(error)) from None


async def _tls(settings: Settings) -> None:
    await asyncio.to_thread(tls.read, settings)


async def _journal(url: str) -> None:
    """Raise Unfit for a URL with which no journal can be written from here. The database is not asked."""
    try:
        address(url)
    except Refused as error:
        raise Unfit(f"the setting journal: {error}") from None


async def _metrics_folder(folder: Path) -> None:
    try:
        check_writable(folder / "metrics")
    except OSError as error:
        raise Unfit(f"PROMETHEUS_MULTIPROC_DIR cannot be used as the folder for metrics: {error}") from None


async def _port(part: str, host: str, port: int) -> None:
    with blamed_on(part, port):
        await check_free(host, port)


async def _socket(path: str) -> None:
    check_path(Path(path))


_SERVICE, _CLIENT = "jobqueue", "jobqueue-client"  # distributions


def check_packages() -> Iterator[Finding]:
    """A warning if the client is installed beside the service: it shares its files with the client in the service's
    package."""
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
    for name, place in addresses(chosen.protocols, chosen.host).items():
        yield Finding("ok", f"protocols.{name}", f"at {place}")
