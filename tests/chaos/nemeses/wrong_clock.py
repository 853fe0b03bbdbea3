"""Moves the clock of all instances an hour ahead, then an hour back, with libfaketime; that of Redis stays right."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path

import aiohttp

from tests.chaos.faketime import by_file
from tests.chaos.nemeses import Nemesis
from tests.chaos.stage import Instance, Stage

_LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
_PATIENCE_S = 180.0  # it may be about to start again


async def _is_wrong(instance: Instance, offset_s: float) -> None:
    """Wait until its clock is wrong by that much, according to the headers of its answers."""
    async with asyncio.timeout(_PATIENCE_S), aiohttp.ClientSession() as session:
        while True:
            with suppress(aiohttp.ClientError):
                async with session.get(instance.url + "/healthz") as response:
                    said = parsedate_to_datetime(response.headers["Date"]).timestamp()
                if abs(said - time.time() - offset_s) < 60:
                    return
            await asyncio.sleep(0.05)


class WrongClock(Nemesis):
    """`for_s`: how long each wrong time lasts."""

    def __init__(self, every_s: float, for_s: float) -> None:
        super().__init__(every_s)
        self._for_s = for_s

    def environment(self, folder: Path) -> dict[str, str]:
        if not _LIBRARIES:
            raise RuntimeError("libfaketime is missing: apt-get install libfaketime")
        self._set(folder, "+0")
        return {"LD_PRELOAD": str(_LIBRARIES[0]), **by_file(folder / "faketime")}

    def _set(self, folder: Path, offset: str) -> None:
        (folder / "faketime").write_text(offset + "\n")

    async def strike(self, stage: Stage) -> None:
        with stage.history.fault("wrong-clock"):
            for offset_s in (3600, -3600):
                self._set(stage.folder, f"{offset_s:+}")
                for instance in stage.instances:
                    await _is_wrong(instance, offset_s)
                await asyncio.sleep(self._for_s)
            await self.heal(stage)

    async def heal(self, stage: Stage) -> None:
        self._set(stage.folder, "+0")
