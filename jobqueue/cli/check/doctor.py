"""`jobqueue doctor`: what `jobqueue check` finds, what a running service reports about itself, and a bundle of both.

The bundle is a .tar.gz of text files for a bug report. It is sent to strangers, so it contains no secrets, and nothing
about single jobs.
"""

from __future__ import annotations

import io
import platform
import re
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from buckets.errors import JobQueueError
from buckets.redis.info import facts_of
from jobqueue import __version__, settings
from jobqueue.cli import humanize
from jobqueue.cli.access import shown, url_of
from jobqueue.cli.check.check import check, redis_of
from jobqueue.cli.check.service import NO_SERVICE, check_running
from jobqueue.cli.client import Client, Refusal, Unreachable, base_of, session_of
from jobqueue.errors import SettingsError
from jobqueue.health.findings import Finding, Findings
from jobqueue.redis_server.opening import redis_at

if TYPE_CHECKING:
    from jobqueue_client.access import Access, AccessFields


_FOLDER = "jobqueue-doctor"
_TOOLS = 'extra == "test"'
_ADDRESSES = re.compile(r"(slave\d+|master_host|master_port|cluster_.*)\Z")
"""Fields of INFO that say where clients and other servers are."""


class Bundle:
    """Files that are collected first, then written together."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}

    def add(self, name: str, lines: Iterable[str]) -> None:
        """Add a file `<name>.txt`."""
        self._files[name] = "".join(f"{line}\n" for line in lines)

    def write(self, path: str) -> None:
        """Write the files into a new archive that only its owner may read. It replaces any other file or link of that
        name. Raises OSError."""
        opened, new = tempfile.mkstemp(dir=Path(path).parent)
        try:
            with open(opened, "wb") as file:  # noqa: PTH123 - mkstemp has set its mode
                self._pack(file)
            Path(new).replace(path)
        except BaseException:
            Path(new).unlink(missing_ok=True)
            raise

    def _pack(self, file: IO[bytes]) -> None:
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, text in sorted(self._files.items()):
                data = text.encode("utf-8", "replace")
                about = tarfile.TarInfo(f"{_FOLDER}/{name}.txt")
                about.size, about.mtime = len(data), int(time.time())
                archive.addfile(about, io.BytesIO(data))


def versions() -> Iterator[str]:
    """The versions of this program, of Python, of the system, and of the required libraries."""
    yield f"jobqueue {__version__}"
    yield f"Python {platform.python_version()}"
    yield platform.platform()
    with suppress(PackageNotFoundError):  # a checkout that is not installed
        for required in distribution("jobqueue").requires or ():
            name = re.split(r"[^A-Za-z0-9_.-]", required, maxsplit=1)[0]
            with suppress(PackageNotFoundError):
                if _TOOLS not in required:
                    yield f"{name} {version(name)}"


async def redis_facts(url: str, timeout_s: float) -> list[str]:
    """The lines of INFO of each server of a Redis, or the reason why it cannot be asked."""
    if not url:
        return ["the embedded Redis is not running"]
    try:
        redis = redis_at(url, timeout_s)
    except JobQueueError as error:
        return [error.message]
    lines = []
    try:
        for number, server in enumerate(await redis.servers(), 1):
            lines.append(f"# server {number}")
            facts = await facts_of(server)
            lines += [f"{name}:{value}" for name, value in facts.items() if not _ADDRESSES.match(name)]
    except JobQueueError as error:
        lines.append(error.message)
    finally:
        await redis.close()
    return lines


_ANSWER_S = 10.0  # for /metrics, which asks Redis about each topic
_OK = 200
_NAMES = re.compile(r'[{,](?:topic|token)="')  # of figures about a single topic or token


class Patient(NamedTuple):
    """What is examined: the service at a URL or, without a URL, what `serve` would start with these settings."""

    url: str | None
    flags: Mapping[str, Any]
    file: settings.File | None
    files: AccessFields


async def examine(patient: Patient, bundle: Bundle | None) -> Findings:
    """All findings. They also go into the bundle, together with versions, settings, and facts about Redis."""
    lines = []
    chosen = None if patient.url else _settings(patient)
    async for finding in _findings(patient, chosen, bundle):
        lines.append(humanize.clean(finding.without_job()))
        yield finding
    if bundle:
        bundle.add("versions", versions())
        bundle.add("check", lines)
        if chosen:
            bundle.add("settings", [f"{name} = {value}" for name, value in chosen.shown().items()])
            bundle.add("redis", await redis_facts(await redis_of(chosen), chosen.redis_timeout_s))


async def _findings(patient: Patient, chosen: settings.Settings | None, bundle: Bundle | None) -> Findings:
    """`chosen`: the settings of the service, or None if a URL names the service or the settings are not valid."""
    if patient.url:
        found = check_running(patient.url, patient.files)
    else:
        found = check(patient.flags, patient.file, patient.files)
    is_service = True
    async for finding in found:
        is_service = is_service and NO_SERVICE not in finding.sentence
        yield finding
    url = patient.url or (url_of(chosen) if chosen else "")
    if not (url and is_service):  # another program may stay silent for as long as a service may take
        return
    access = shown(url, patient.files)
    try:
        yield await _bearer(Client(url, access))
    except Unreachable:  # this is already a finding
        return
    text = await _metrics(url.rstrip("/"), access)
    yield _figures(text)
    if bundle and text:
        bundle.add("metrics", [line for line in text.splitlines() if not _NAMES.search(line)])


def _settings(patient: Patient) -> settings.Settings | None:
    """The settings, or None if they are not valid."""
    try:
        return settings.load(patient.flags, patient.file)
    except SettingsError:
        return None


async def _bearer(client: Client) -> Finding:
    """What the service lets this command line do. Raises Unreachable."""
    try:
        async with client:
            bearer = (await client.ask("whoami")).fields
    except Refusal as error:
        return Finding("warn", "token", str(error))
    if bearer["open"]:
        return Finding("ok", "token", "the service asks for none")
    reach = ", ".join(bearer["topics"]) or "all"
    return Finding("ok", "token", f"{bearer['name']}; rights: {', '.join(bearer['rights'])}; topics: {reach}")


async def _metrics(url: str, access: Access) -> str:
    """The text of /metrics, or an empty string if this token may not read it, or nothing answers."""
    headers = {"Authorization": access.token.authorization} if access.token.authorization else {}
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    try:
        async with (
            session_of(access, url) as session,
            session.get(f"{base_of(url)}/metrics", headers=headers, timeout=timeout) as got,
        ):
            return await got.text() if got.status == _OK else ""
    except (aiohttp.ClientError, OSError):
        return ""


def _figures(text: str) -> Finding:
    """A finding with a few figures that help to tell problems apart."""
    if not text:
        return Finding("ok", "figures", "not seen: /metrics is for tokens with the right metrics")
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    version = next((each.labels["version"] for each in samples if each.name == "jobqueue_build_info"), "unknown")
    sums: dict[str, float] = {}
    for sample in samples:
        sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    calls = sums.get("jobqueue_redis_call_duration_seconds_count", 0.0)
    mean_s = sums.get("jobqueue_redis_call_duration_seconds_sum", 0.0) / calls if calls else 0.0
    sentence = (
        f"version {version}; instances: {sums.get('jobqueue_instances', 0.0):.0f}; calls of Redis: {calls:.0f}, of"
        f" {mean_s * 1000:.1f} ms on average; jumps of its clock: {sums.get('jobqueue_clock_jumps_total', 0.0):.0f}"
    )
    if version != __version__:
        return Finding("warn", "figures", f"{sentence}; this program is version {humanize.clean(__version__)}")
    return Finding("ok", "figures", sentence)
