"""The bundle of `jobqueue doctor`: text files in a .tar.gz, without secrets and without anything about single jobs."""

from __future__ import annotations

import io
import platform
import re
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import IO

from buckets.errors import JobQueueError
from buckets.redis.info import facts_of
from jobqueue import __version__
from jobqueue.redis_server.fitness import redis_at

_FOLDER = "jobqueue-doctor"
_TOOLS = 'extra == "test"'
_ADDRESSES = re.compile(r"(slave\d+|master_host|master_port|cluster_.*)\Z")
"""Fields of INFO that say where clients and other servers are."""


class Bundle:
    """Files that are collected, then written at once."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}

    def add(self, name: str, lines: Iterable[str]) -> None:
        """Add a file `<name>.txt`."""
        self._files[name] = "".join(f"{line}\n" for line in lines)

    def write(self, path: str) -> None:
        """Write them into a new file that its owner alone may read, in the place of any other file or link of that
        name. Raises OSError."""
        opened, new = tempfile.mkstemp(dir=Path(path).parent)
        try:
            with open(opened, "wb") as file:  # noqa: PTH123 - has its mode
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
    """What runs here: this program, Python, the system, and the libraries that are required."""
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
    """INFO of each server of a Redis; why there is none, if it cannot be asked."""
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
